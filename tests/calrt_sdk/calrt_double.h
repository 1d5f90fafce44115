/* The strings by which a test pulls the double of the SDK. They are C, found by dlsym(). */
#ifndef NPUFS_TESTS_CALRT_DOUBLE_H
#define NPUFS_TESTS_CALRT_DOUBLE_H

#ifdef __cplusplus
extern "C" {
#endif

/* How the call of that name ("infer", "Wait", "isExist") goes wrong, each time until the next
 * calrt_double_arm(); NULL: none does. A code above 0 is returned, by a void call or a query: it does
 * nothing, or answers 0, an empty text or NULL. The environment CALRT_DOUBLE_ARM="infer=18" does the
 * same from the start. */
enum calrt_double_way {
	DOUBLE_THROWS = -1,    /* std::runtime_error, with a path in its text */
	DOUBLE_NO_MEMORY = -2, /* std::bad_alloc */
	DOUBLE_THROWS_A_NUMBER = -3
};
void calrt_double_arm(const char *call, int way);

/* The names of the calls since calrt_double_record(), each followed by a blank; what is destroyed
 * has a ~ and its class's name. */
void calrt_double_record(void);
const char *calrt_double_log(void);
/* Objects of the SDK's classes alive. */
unsigned calrt_double_alive(void);

#ifdef __cplusplus
}
#endif

#endif
