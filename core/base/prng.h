/* xoshiro256** seeded through splitmix64 (Blackman and Vigna, prng.di.unimi.it): a fast,
 * well-tested generator, the same on every machine. Not for secrets. */
#ifndef NPUFS_CORE_BASE_PRNG_H
#define NPUFS_CORE_BASE_PRNG_H

#include <stdint.h>

struct prng {
	uint64_t s[4];
};

static inline uint64_t prng_splitmix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline void prng_seed(struct prng *p, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		p->s[i] = prng_splitmix(&seed);
}

static inline uint64_t prng_rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static inline uint64_t prng_next(struct prng *p)
{
	uint64_t *s = p->s, result = prng_rotate(s[1] * 5, 7) * 9, kept = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= kept;
	s[3] = prng_rotate(s[3], 45);
	return result;
}

/* Uniform in 0..n-1, but for a bias below n / 2^64. */
static inline uint64_t prng_below(struct prng *p, uint64_t n)
{
	return (uint64_t)((unsigned __int128)prng_next(p) * n >> 64);
}

#endif
