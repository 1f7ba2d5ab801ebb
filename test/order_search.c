#include "test/order_search.h"

#include <stdbool.h>
#include <string.h>
#include <ucontext.h>

#include "agent/record/model_step.h"
#include "test/demand.h"

enum { STEPS_MAX = 400, STACK_BYTES = 256 << 10, PLACES_MAX = 64 };

/* ---- actors ---- */

static struct actor {
    ucontext_t context;
    void (*run)(void);
    const void *place; /* of the access that it stands before */
    bool is_over;
} actors[ACTORS_MAX];
static int actor_count;
static struct actor *current;
static ucontext_t scheduler;
static char stacks[ACTORS_MAX][STACK_BYTES];

static void yield_before(const void *place)
{
    struct actor *self = current;
    if (!self)
        return;
    self->place = place;
    swapcontext(&self->context, &scheduler);
}

static void actor_main(void)
{
    current->run();
    current->is_over = true;
    current->place = NULL;
    swapcontext(&current->context, &scheduler);
}

/* To its next access, or its end. */
static void resume(int index)
{
    current = &actors[index];
    swapcontext(&scheduler, &current->context);
    current = NULL;
}

static void begin_actors(void (*const *runs)(void))
{
    for (actor_count = 0; actor_count < ACTORS_MAX && runs[actor_count]; actor_count++) {
        struct actor *actor = &actors[actor_count];
        getcontext(&actor->context);
        actor->context.uc_stack.ss_sp = stacks[actor_count];
        actor->context.uc_stack.ss_size = STACK_BYTES;
        actor->context.uc_link = NULL;
        actor->run = runs[actor_count];
        actor->is_over = false;
        makecontext(&actor->context, actor_main, 0);
        resume(actor_count);
    }
}

/* ---- the search ---- */

struct clock {
    int at[ACTORS_MAX]; /* steps of each actor that happened before, as number + 1 */
};

static struct state {
    unsigned backtrack, done; /* sets of actors */
    int chosen;
} states[STEPS_MAX];
static int planned; /* states of the last order that the next one begins with */

static struct place {
    const void *place;
    struct clock clock;
    int last_step, last_actor;
} places[PLACES_MAX];
static int place_count;
static struct clock clocks[ACTORS_MAX];

static struct place *place_of(const void *place)
{
    for (int i = 0; i < place_count; i++)
        if (places[i].place == place)
            return &places[i];
    demand(place_count < PLACES_MAX);
    places[place_count] = (struct place){.place = place, .last_step = -1};
    return &places[place_count++];
}

/* Where an actor's next access could as well have come before the last one to that place: that
 * order is to be run, too. */
static void note_race(int actor)
{
    const struct place *place = place_of(actors[actor].place);
    if (place->last_step < 0 || place->last_actor == actor ||
        place->last_step < clocks[actor].at[place->last_actor])
        return;
    states[place->last_step].backtrack |= 1u << actor;
}

static int choose(int depth)
{
    struct state *state = &states[depth];
    if (depth < planned)
        return state->chosen;
    int actor = depth && !actors[states[depth - 1].chosen].is_over ? states[depth - 1].chosen : 0;
    while (actors[actor].is_over)
        actor++;
    *state = (struct state){1u << actor, 1u << actor, actor};
    return actor;
}

static bool all_are_over(void)
{
    for (int i = 0; i < actor_count; i++)
        if (!actors[i].is_over)
            return false;
    return true;
}

static void run_order(void (*const *runs)(void))
{
    int depth = 0;
    place_count = 0;
    memset(clocks, 0, sizeof(clocks));
    begin_actors(runs);
    for (; !all_are_over(); depth++) {
        demand(depth < STEPS_MAX);
        for (int i = 0; i < actor_count; i++)
            if (!actors[i].is_over)
                note_race(i);
        int actor = choose(depth);
        struct place *place = place_of(actors[actor].place);
        for (int i = 0; i < ACTORS_MAX; i++)
            if (clocks[actor].at[i] < place->clock.at[i])
                clocks[actor].at[i] = place->clock.at[i];
        clocks[actor].at[actor] = depth + 1;
        place->clock = clocks[actor];
        place->last_step = depth;
        place->last_actor = actor;
        resume(actor);
    }
    planned = depth;
}

/* The next order: the last state that has an actor to try. False: all were run. */
static bool plan_next(void)
{
    while (planned > 0) {
        struct state *state = &states[planned - 1];
        unsigned left = state->backtrack & ~state->done;
        if (left) {
            state->chosen = __builtin_ctz(left);
            state->done |= 1u << state->chosen;
            return true;
        }
        planned--;
    }
    return false;
}

uint64_t order_search(const struct order_case *orders, uint64_t most, bool *all)
{
    uint64_t count = 0;
    bool more;
    planned = 0;
    model_step = yield_before;
    do {
        orders->restore();
        run_order(orders->actors);
        orders->judge();
        count++;
        more = plan_next();
    } while (more && count < most);
    model_step = NULL;
    *all = !more;
    return count;
}
