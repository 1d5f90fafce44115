/* Numbers as JSON writes them: integers read without loss, binary numbers printed so that they read
 * back as the same number. The C locale is assumed. */
#ifndef NPUFS_CORE_BASE_DECIMAL_H
#define NPUFS_CORE_BASE_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>

struct decimal {
	bool negative; /* also of -0 */
	uint64_t magnitude;
};

/* The exact value of a number by the grammar of RFC 8259, such as "12", "-1.50e2" or "1000e-3";
 * what follows the number is not looked at. -EINVAL when it is not an integer, -ERANGE when it
 * takes more than 64 bits and a sign. */
int decimal_read(const char *text, struct decimal *ret);

/* In as few digits, from 15 (of a float: 6) up, as read back; integers below 2^53 (of a float:
 * 2^24) in full. Both take finite numbers and return ret. */
#define DECIMAL_TEXT_SIZE 32
const char *decimal_from_double(double d, char ret[DECIMAL_TEXT_SIZE]);
const char *decimal_from_float(float f, char ret[DECIMAL_TEXT_SIZE]);

#endif
