/* throw_layer.h: what prog_throw_layer, an object for dlopen, gives to the programs that open it.
 * Owns: nothing. Context: programs, any thread. Locks: none. */
#ifndef LIBAGENT_TEST_THROW_LAYER_H
#define LIBAGENT_TEST_THROW_LAYER_H

#ifdef __cplusplus
extern "C" {
#endif

/* What a layer does with a runtime_error that comes up from below. */
enum layer_way { LAYER_PASS, LAYER_THROW_AGAIN, LAYER_THROW_COPY, LAYER_THROW_ANOTHER, LAYER_WAYS };

typedef void layer_fn(void *argument);

/* Calls `below`, with objects on the stack that count how often they were destroyed. */
void layer_call(enum layer_way way, layer_fn *below, void *argument);
/* Objects destroyed in this copy of the layer, in all threads. */
unsigned long layer_destroyed(void);
/* Throws and catches `count` exceptions, all inside the layer and libstdc++; the number caught. */
unsigned long layer_throw_and_catch(unsigned long count);

#ifdef __cplusplus
}
#endif

#endif
