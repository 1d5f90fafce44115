#include "core/base/hex.h"

#define DIGITS "0123456789abcdef"

void hex_put(const uint8_t *bytes, size_t n, char *ret)
{
	for (size_t i = 0; i < n; i++) {
		ret[2 * i] = DIGITS[bytes[i] >> 4];
		ret[2 * i + 1] = DIGITS[bytes[i] & 15];
	}
	ret[2 * n] = '\0';
}

static int value_of(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool hex_get(const char *text, uint8_t *ret, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int high = value_of(text[2 * i]), low = high < 0 ? -1 : value_of(text[2 * i + 1]);

		if (low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}
