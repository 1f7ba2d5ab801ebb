/* Servers under load give under the agent the answers that they give without it. Scripts
 * test/preload/server_* start them, client_* load them, tell all that comes back, and end them.
 * Servers and clients run under the agent, beside others without it; compared is what both say,
 * and how they end. */
#include <stdio.h>

#include "test/check.h"
#include "test/preload/profile_expect.h"
#include "test/preload/run_pair.h"

#define WHOLE_MIN 0.99

/* Threads of the agent's from the first second on, and many samples. */
static const char *const environment[] = {"LIBAGENT_PERIOD=1s", "LIBAGENT_FREQUENCY=250",
                                          "LIBAGENT_ALLOC_INTERVAL=64KiB", "LC_ALL=C", NULL};

struct service {
    struct run_pair server, client;
};

static void start_script(struct run *run, const char *script, const char *argument, bool with_agent)
{
    char path[PATH_MAX];
    run_script_path(script, path);
    run_start(run, &(struct run_request){.program = run_script_interpreter(script),
                                         .arguments = (const char *[]){path, argument, NULL},
                                         .environment = environment,
                                         .without_agent = !with_agent,
                                         .seconds = 90});
}

static void run_service(struct service *service, const char *server, const char *client)
{
    struct run_pair *servers = &service->server, *clients = &service->client;
    start_script(&servers->with, server, NULL, true);
    start_script(&servers->without, server, NULL, false);
    start_script(&clients->with, client, servers->with.folder, true);
    start_script(&clients->without, client, servers->without.folder, false);
    run_wait(&clients->without);
    run_wait(&clients->with);
    run_expect_success(&clients->without);
    run_expect_same(&clients->with, &clients->without);
    run_wait(&servers->without);
    run_wait(&servers->with);
    run_expect_success(&servers->without);
}

static void free_service(struct service *service)
{
    run_pair_free(&service->server);
    run_pair_free(&service->client);
}

/* redis-server's own output has times; how it ended is compared. */
START_TEST(test_redis)
{
    struct service service;
    run_service(&service, "server_redis.sh", "client_redis.sh");
    const struct run *server = &service.server.with;
    run_expect_quiet_success(server);

    struct profile profile;
    profile_load(&profile, server->profiles, "cpu", server->pid);
    ck_assert_uint_ge(profile.file_count, 2);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS), 1e9);
    ck_assert_double_ge((double)profile_total(&profile, CPU_NS), server->cpu_seconds * 0.9e9);
    /* Debian's libc names its exported functions only. */
    for (size_t i = 0; i < profile.stack_count; i++)
        for (uint32_t k = 0; k < profile.stacks[i].depth; k++)
            ck_assert_int_ne(profile.stacks[i].frames[k].function[0], 0);
    profile_free(&profile);
    profile_expect(server->profiles, "cpu", server->pid, WHOLE_MIN,
                   (const struct expectation[]){{"main", 0.9},
                                                {"aeMain", 0.9},
                                                {"readQueryFromClient", 0.2},
                                                {"processCommand", 0.1},
                                                {"call", 0.05},
                                                {"lrangeCommand", 0.001},
                                                {NULL, 0}});
    profile_expect(server->profiles, "heap", server->pid, WHOLE_MIN,
                   (const struct expectation[]){{"main", 0.9},
                                                {"aeMain", 0.5},
                                                {"setCommand", 0.001},
                                                {"pushGenericCommand", 0.1},
                                                {"zaddGenericCommand", 0.001},
                                                {NULL, 0}});
    free_service(&service);
}
END_TEST

/* The server's script tells which messages nginx logged, so that each signal that it was sent, and
 * each end of a worker, is compared. */
START_TEST(test_nginx_with_reload)
{
    struct service service;
    run_service(&service, "server_nginx.sh", "client_nginx.py");
    run_expect_same(&service.server.with, &service.server.without);
    profile_expect(service.server.with.profiles, "cpu", 0, WHOLE_MIN,
                   (const struct expectation[]){
                       {"ngx_process_events_and_timers", 0.5}, {"deflate", 0.2}, {NULL, 0}});
    free_service(&service);
}
END_TEST

/* The server tells version, ciphers and signatures of each handshake. */
START_TEST(test_tls_handshakes)
{
    struct service service;
    run_service(&service, "server_openssl.sh", "client_openssl.sh");
    run_expect_same(&service.server.with, &service.server.without);
    profile_expect(
        service.server.with.profiles, "cpu", service.server.with.pid, WHOLE_MIN,
        (const struct expectation[]){{"BIO_ctrl", 0.2}, {"EVP_DigestSignFinal", 0.1}, {NULL, 0}});
    free_service(&service);
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("harm_servers");
    TCase *tcase = tcase_create("servers");
    tcase_set_timeout(tcase, 200);
    tcase_add_test(tcase, test_redis);
    tcase_add_test(tcase, test_nginx_with_reload);
    tcase_add_test(tcase, test_tls_handshakes);
    suite_add_tcase(suite, tcase);
    return suite;
}
