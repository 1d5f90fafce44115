/* Reading holds zeros back until another digit follows them, so that 1.500e2, 100e-2 and 1 with
 * thirty zeros and e-30 are seen as the integers they are, without overflow on the way. */
#include "core/base/decimal.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define EXACT_LIMIT 9007199254740992.0 /* 2^53: up to here every integer is a double of its own */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Magnitude times ten to the exponent; 0 stays 0 whatever the exponent. */
static bool scale(uint64_t *magnitude, int64_t exponent)
{
	for (; exponent > 0 && *magnitude != 0; exponent--)
		if (__builtin_mul_overflow(*magnitude, (uint64_t)10, magnitude))
			return false;
	return true;
}

/* Saturates far outside what any number of digits could balance. */
static int64_t read_exponent(const char *p)
{
	bool negative = *p == '-';
	int64_t e = 0;

	if (*p == '-' || *p == '+')
		p++;
	for (; is_digit(*p); p++)
		if (e < INT32_MAX)
			e = e * 10 + (*p - '0');
	return negative ? -e : e;
}

int decimal_read(const char *text, struct decimal *ret)
{
	struct decimal d = { .negative = *text == '-' };
	int64_t exponent = 0, zeros = 0;
	bool fraction = false, fits = true;
	const char *p;

	for (p = text + d.negative; is_digit(*p) || *p == '.'; p++) {
		if (*p == '.') {
			fraction = true;
			continue;
		}
		exponent -= fraction;
		if (*p == '0') {
			zeros++;
			continue;
		}
		fits = fits && scale(&d.magnitude, zeros + 1) &&
			!__builtin_add_overflow(d.magnitude, (uint64_t)(*p - '0'), &d.magnitude);
		zeros = 0;
	}
	if (*p == 'e' || *p == 'E')
		exponent += read_exponent(p + 1);
	exponent += zeros;
	if (fits && d.magnitude == 0)
		exponent = 0;
	if (exponent < 0)
		return -EINVAL;
	if (!fits || !scale(&d.magnitude, exponent))
		return -ERANGE;
	*ret = d;
	return 0;
}

const char *decimal_from_double(double d, char ret[DECIMAL_TEXT_SIZE])
{
	if (floor(d) == d && fabs(d) < EXACT_LIMIT) {
		snprintf(ret, DECIMAL_TEXT_SIZE, "%.0f", d);
		return ret;
	}
	for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
		snprintf(ret, DECIMAL_TEXT_SIZE, "%.*g", digits, d);
		if (strtod(ret, NULL) == d)
			break;
	}
	return ret;
}

const char *decimal_from_float(float f, char ret[DECIMAL_TEXT_SIZE])
{
	if (floorf(f) == f && fabsf(f) < (float)(1 << FLT_MANT_DIG)) {
		snprintf(ret, DECIMAL_TEXT_SIZE, "%.0f", (double)f);
		return ret;
	}
	for (int digits = FLT_DIG; digits <= FLT_DECIMAL_DIG; digits++) {
		snprintf(ret, DECIMAL_TEXT_SIZE, "%.*g", digits, (double)f);
		if (strtof(ret, NULL) == f)
			break;
	}
	return ret;
}
