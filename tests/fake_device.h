/* A backend for tests: it records every call, fails the calls it is told to fail, does nothing
 * where a void call is told to fail silently, and holds an inference until it is let go. One at a
 * time, so that a test needs no handle to it.
 *
 * Its programs are those of `fake.models`, at first an LLM's: prefill of 4 tokens, decode,
 * kv_update, context 16, vocabulary 257, bytes as tokens, 256 ends the text. After L tokens of a
 * sequence the likeliest next one is 'a' + L % 26, or the end when L >= fake.stop_len. Any other
 * program gives twice its first input. */
#ifndef NPUFS_TESTS_FAKE_DEVICE_H
#define NPUFS_TESTS_FAKE_DEVICE_H

#include "core/device.h"

#define FAKE_CONTEXT 16
#define FAKE_UBATCH  4
#define FAKE_VOCAB   257
#define FAKE_END     256

struct fake_device {
	struct model_info *models; /* what the calbin reports */
	size_t n_models;
	struct llm_info llm;
	struct device_info info;
	const char *version;
	const char *golden_in, *golden_out; /* text; NULL: none */
	const char *broken_path;            /* create_calbin fails for a path with this in it */
	/* may be changed while a device runs */
	_Atomic uint32_t stop_len;
	_Atomic unsigned kv_capacity;
	_Atomic bool silent_allocate, silent_free, silent_remove; /* the void call does nothing */
	_Atomic bool short_apply; /* the sequence grows by one token less */
	_Atomic bool
		short_commit; /* kv_update loses a token of the sequence that was applied last */
	_Atomic bool refused_apply; /* it grows, and the answer is no */
	_Atomic enum device_run status;
	_Atomic bool poison; /* the first element of an output is `poison_bits` */
	_Atomic uint64_t poison_bits;
};

extern struct fake_device fake;
extern const struct device_ops fake_ops;       /* brings its own manifest */
extern const struct device_ops fake_pair_ops;  /* has two engines, too; "ping", "pong" are logged */
extern const struct device_ops fake_store_ops; /* the same for artifacts of a store */
extern const char fake_manifest[];

void fake_reset(void);
/* The nth call of that name from now on gives this code, nth 0: all. */
void fake_fail(const char *call, unsigned nth, enum npu_error code);
/* The names of all calls since the last clear, each followed by a blank. */
void fake_log(char *ret, size_t size);
void fake_log_clear(void);
unsigned fake_count(const char *call); /* since the last clear */

/* wait() does not come back while held. */
void fake_hold(void);
void fake_hold_at(unsigned nth); /* from the nth wait from now on */
void fake_await_held(void);      /* until an inference hangs in it */
void fake_let_go(void);

#endif
