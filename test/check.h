/* check.h: what every module suite shares. A suite is one file test/check_NAME.c that defines
 * `Suite *suite(void)`; main is here. */
#ifndef LIBAGENT_TEST_CHECK_H
#define LIBAGENT_TEST_CHECK_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

Suite *suite(void);

/* Under an emulator (run_suites.sh sets LEFT_OUT, to the names of test/aarch64.txt). */
bool test_is_emulated(void);
/* Is the test one of those that the emulator cannot run? */
bool test_is_left_out(const char *name);

#undef tcase_add_test
#define tcase_add_test(tcase, test)                                                                \
    do {                                                                                           \
        if (!test_is_left_out(#test))                                                              \
            tcase_add_test_raise_signal(tcase, test, 0);                                           \
    } while (0)

#undef tcase_add_loop_test
#define tcase_add_loop_test(tcase, test, from, to)                                                 \
    do {                                                                                           \
        if (!test_is_left_out(#test))                                                              \
            tcase_add_loop_test_raise_signal(tcase, test, 0, from, to);                            \
    } while (0)

#endif
