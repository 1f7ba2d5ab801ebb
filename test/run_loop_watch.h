/* run_loop_watch.h: the uploader under a test's eyes, writing into a temporary folder.
 *
 * Nothing waits for time to pass: the system calls of the run loop's thread are watched, so that
 * a test knows where it stands, can stop it there, and can let its time-outs pass at once.
 *
 * Owns: `watch`, sys_override. Used by the uploader's suites. */
#ifndef LIBAGENT_TEST_RUN_LOOP_WATCH_H
#define LIBAGENT_TEST_RUN_LOOP_WATCH_H

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "uploader/uploader.h"

extern char watch_base[64];
extern char watch_missing[80]; /* base/gone: while it is, the output folder cannot be made */
extern char watch_output[96];  /* base/gone/out */

extern __thread bool is_run_loop; /* the calling thread is the one of start_run_loop */

struct watch {
    long stop_at; /* call number at which the run loop's thread stops once; 0: nowhere */
    sem_t stopped;
    sem_t go_on;
    sem_t idle;        /* posted when it begins to wait for blobs */
    sem_t asleep;      /* posted when it begins to wait for its next try: wait_until_asleep */
    uint32_t *news;    /* the word that it waits on then */
    uint32_t seen;     /* and what it has seen there */
    uint64_t deadline; /* of the last of these waits */
    int time_outs;     /* so many of them end at once, by time */
    int timed_out;     /* so many have */
    int mmaps;         /* calls, of the run loop's thread */
    long mapped;       /* bytes, of all threads */
    char order[32768]; /* names that were given to files, in order, each with a blank after it */
};
extern struct watch watch;

void watch_setup(void);
void watch_teardown(void);
/* The observer, for suites that answer other calls themselves. */
bool watch_calls(long number, const long args[6], long *result);

void start_uploader(enum compression compression, uint64_t limit);
void start_run_loop(void);
/* It has tried all that was submitted, and waits for its next try. */
void wait_until_asleep(void);
void stop_run_loop_at(long number);
void end_run_loop(void);
/* What uploader_wait_done says at once. */
bool nothing_is_left(void);
/* Finish and run, in the calling thread. */
void run_to_the_end(void);
void make_output_possible(void);

/* The text of blob `sequence`, of about 1000 bytes; its length. */
size_t blob_text(uint32_t sequence, char *text, size_t size);
void submit_blob_of(uint32_t sequence, const char *family);
void submit_blob(uint32_t sequence);
void assert_blob_written(uint32_t sequence);
/* Blobs first to last, written last of all and in this order, and no other files. */
void assert_blobs_written(uint32_t first, uint32_t last);
int count_in_log(const char *text);

#endif
