/* Bytes as lower-case hexadecimal digits, two each. */
#ifndef NPUFS_CORE_BASE_HEX_H
#define NPUFS_CORE_BASE_HEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `ret`: 2 n digits and a NUL. */
void hex_put(const uint8_t *bytes, size_t n, char *ret);
/* `n` bytes from 2 n digits, which need not be the end of the text; false: they are no such digits. */
bool hex_get(const char *text, uint8_t *ret, size_t n);

#endif
