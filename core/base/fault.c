/* Texts are printed to a whole buffer first and then copied with the place's size in mind: so the
 * clean-up sees complete characters, and what is cut is cut between two of them. */
#include "core/base/fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/base/utf8.h"

/* --- texts ------------------------------------------------------------------------------------ */

/* Bytes of the character at `p` that a terminal or a reader of lines could take for a command: C0,
 * DEL, C1 (U+0080..9F) and the two line separators of Unicode. 0 for an ordinary character. */
static size_t control_length(const char *p)
{
	const unsigned char *u = (const unsigned char *)p;

	if (u[0] < 0x20 || u[0] == 0x7f)
		return 1;
	if (u[0] == 0xc2 && u[1] < 0xa0)
		return 2;
	if (u[0] == 0xe2 && u[1] == 0x80 && (u[2] == 0xa8 || u[2] == 0xa9))
		return 3;
	return 0;
}

/* The character at `p` of `len` bytes: how many to take, and whether they are fit to print. */
static size_t take_char(const char *p, size_t len, bool *ret_fit)
{
	size_t n = 1, control;

	while (n < 4 && n < len && ((unsigned char)p[n] & 0xc0) == 0x80)
		n++;
	while (n > 1 && utf8_valid_prefix(p, n) != n)
		n--;
	*ret_fit = utf8_valid_prefix(p, n) == n;
	control = *ret_fit ? control_length(p) : 0;
	if (control)
		*ret_fit = false;
	return control ? control : n;
}

void fault_clean(char *to, size_t size, const char *text)
{
	size_t len = strlen(text), at = 0, n;
	bool fit;

	while (len > 0) {
		n = take_char(text, len, &fit);
		if (at + (fit ? n : 1) >= size)
			break;
		if (fit)
			memcpy(to + at, text, n);
		else
			to[at] = '?';
		at += fit ? n : 1;
		text += n;
		len -= n;
	}
	to[at] = '\0';
}

__attribute__((format(printf, 6, 0))) static int fill(struct fault *f, int err, const char *field,
	long offset, const char *action, const char *fmt, va_list ap)
{
	char reason[4 * sizeof f->reason]; /* a clean-up can shrink text to a third */

	if (!f)
		return err;
	vsnprintf(reason, sizeof reason, fmt, ap);
	*f = (struct fault)FAULT_NONE;
	f->err = err;
	f->offset = offset;
	fault_clean(f->field, sizeof f->field, field ? field : "");
	fault_clean(f->reason, sizeof f->reason, reason);
	fault_clean(f->action, sizeof f->action, action ? action : "");
	return err;
}

int fault_set(struct fault *f, int err, const char *action, const char *reason_fmt, ...)
{
	va_list ap;

	va_start(ap, reason_fmt);
	fill(f, err, NULL, -1, action, reason_fmt, ap);
	va_end(ap);
	return err;
}

int fault_at(struct fault *f, int err, const char *field, long offset, const char *action,
	const char *reason_fmt, ...)
{
	va_list ap;

	va_start(ap, reason_fmt);
	fill(f, err, field, offset, action, reason_fmt, ap);
	va_end(ap);
	return err;
}

int fault_from_device(struct fault *f, enum npu_error code, const char *what)
{
	const struct npu_error_row *row = npu_error_row(code);

	fault_set(f, row->err, row->action, "%s: %s (device error %d, %s)", what, row->message,
		(int)code, row->name);
	if (f)
		f->device = code;
	return row->err;
}

/* --- names of errors -------------------------------------------------------------------------- */

#define NAME(e) [e] = #e

static const char *const errno_names[] = {
	NAME(EPERM),
	NAME(ENOENT),
	NAME(ESRCH),
	NAME(EINTR),
	NAME(EIO),
	NAME(ENXIO),
	NAME(E2BIG),
	NAME(ENOEXEC),
	NAME(EBADF),
	NAME(ECHILD),
	NAME(EAGAIN),
	NAME(ENOMEM),
	NAME(EACCES),
	NAME(EFAULT),
	NAME(ENOTBLK),
	NAME(EBUSY),
	NAME(EEXIST),
	NAME(EXDEV),
	NAME(ENODEV),
	NAME(ENOTDIR),
	NAME(EISDIR),
	NAME(EINVAL),
	NAME(ENFILE),
	NAME(EMFILE),
	NAME(ENOTTY),
	NAME(ETXTBSY),
	NAME(EFBIG),
	NAME(ENOSPC),
	NAME(ESPIPE),
	NAME(EROFS),
	NAME(EMLINK),
	NAME(EPIPE),
	NAME(EDOM),
	NAME(ERANGE),
	NAME(EDEADLK),
	NAME(ENAMETOOLONG),
	NAME(ENOLCK),
	NAME(ENOSYS),
	NAME(ENOTEMPTY),
	NAME(ELOOP),
	NAME(ENOMSG),
	NAME(EIDRM),
	NAME(ENOSTR),
	NAME(ENODATA),
	NAME(ETIME),
	NAME(ENOSR),
	NAME(ENOLINK),
	NAME(EPROTO),
	NAME(EBADMSG),
	NAME(EOVERFLOW),
	NAME(ELIBACC),
	NAME(ELIBBAD),
	NAME(EILSEQ),
	NAME(EUSERS),
	NAME(ENOTSOCK),
	NAME(EMSGSIZE),
	NAME(EPROTONOSUPPORT),
	NAME(EOPNOTSUPP),
	NAME(EADDRINUSE),
	NAME(ENETDOWN),
	NAME(ECONNABORTED),
	NAME(ECONNRESET),
	NAME(ENOBUFS),
	NAME(ENOTCONN),
	NAME(ESHUTDOWN),
	NAME(ETIMEDOUT),
	NAME(ECONNREFUSED),
	NAME(EHOSTDOWN),
	NAME(EALREADY),
	NAME(EINPROGRESS),
	NAME(ESTALE),
	NAME(EUCLEAN),
	NAME(EREMOTEIO),
	NAME(EDQUOT),
	NAME(ENOMEDIUM),
	NAME(ECANCELED),
	NAME(ENOKEY),
	NAME(EKEYEXPIRED),
	NAME(EKEYREVOKED),
	NAME(EKEYREJECTED),
	NAME(EOWNERDEAD),
	NAME(ENOTRECOVERABLE),
	NAME(EHWPOISON),
};

const char *fault_errno_name(int err)
{
	unsigned n = err < 0 ? 0u - (unsigned)err : (unsigned)err;

	return n < ARRAY_SIZE(errno_names) && errno_names[n] ? errno_names[n] : "E?";
}

/* --- nearest name ----------------------------------------------------------------------------- */

#define NAME_LIMIT 64
#define FAR        (NAME_LIMIT + 1)

static unsigned char folded(char c)
{
	return c >= 'A' && c <= 'Z' ? (unsigned char)(c - 'A' + 'a') : (unsigned char)c;
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b, letters of either case being
 * equal. Three rows of the table suffice: a swap looks two rows up. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned row[3][NAME_LIMIT + 1];

	for (size_t j = 0; j <= b_len; j++)
		row[0][j] = (unsigned)j;
	for (size_t i = 1; i <= a_len; i++) {
		unsigned *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			bool same = folded(a[i - 1]) == folded(b[j - 1]);

			now[j] = least(least(up[j], now[j - 1]) + 1, up[j - 1] + !same);
			if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
				folded(a[i - 2]) == folded(b[j - 1]))
				now[j] = least(now[j], up2[j - 2] + 1);
		}
	}
	return row[a_len % 3][b_len];
}

/* A third of the longer name may be wrong, and never more than three places of it. */
static unsigned allowed(size_t a_len, size_t b_len)
{
	return least((unsigned)(a_len > b_len ? a_len : b_len) / 3, 3);
}

const char *fault_nearest(const char *given, const char *const *names)
{
	size_t given_len = strnlen(given, NAME_LIMIT + 1);
	const char *best = NULL;
	unsigned best_distance = FAR;

	if (given_len > NAME_LIMIT)
		return NULL;
	for (; *names; names++) {
		size_t len = strnlen(*names, NAME_LIMIT + 1);
		unsigned d = len > NAME_LIMIT ? FAR : distance(given, given_len, *names, len);

		if (d < best_distance && d <= allowed(given_len, len)) {
			best = *names;
			best_distance = d;
		}
	}
	return best;
}
