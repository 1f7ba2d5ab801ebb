/* record_fixture.h: thread table and recorder, started for a suite, and what a window holds. */
#ifndef LIBAGENT_TEST_RECORD_FIXTURE_H
#define LIBAGENT_TEST_RECORD_FIXTURE_H

#include <stdint.h>

#include "agent/record/time_recorder.h"

/* The thread table, on libc's functions. A thread that ends gives its slot back, no more. */
void fixture_threads(void);
/* Tables in `budget` bytes, buffers for stacks of FIXTURE_FRAMES, and the thread table. */
enum { FIXTURE_FRAMES = 16 };
void fixture_start(size_t budget);

/* Turns the windows; no sample may be under way. */
struct window *fixture_turn(void);
/* Rows whose innermost frame is `pc`; all rows and what was truncated. */
struct record_values fixture_at(const struct window *window, enum record_family family,
                                uint64_t pc);
struct record_values fixture_total(const struct window *window, enum record_family family);
uint32_t fixture_rows(const struct window *window);

#endif
