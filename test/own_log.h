/* own_log.h: the agent's log in a file of the test's own. */
#ifndef LIBAGENT_TEST_OWN_LOG_H
#define LIBAGENT_TEST_OWN_LOG_H

/* From here on, lines of level warn and above. */
void own_log_start(void);
/* So many lines with this text. */
int own_log_lines(const char *text);
void own_log_remove(void);
/* For an option of the agent, which is started with its log there. */
const char *own_log_path(void);

#endif
