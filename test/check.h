/* check.h: what every module suite shares. A suite is one file test/check_NAME.c that defines
 * `Suite *suite(void)`; main is here. */
#ifndef LIBAGENT_TEST_CHECK_H
#define LIBAGENT_TEST_CHECK_H

#include <check.h>
#include <stdlib.h>

Suite *suite(void);

#endif
