#include "core/control/control_raw.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/crypto.h"
#include "core/base/hex.h"
#include "core/base/mem.h"

static bool is_write(enum privileged_command c)
{
	return c == PRIVILEGED_MEMORY_WRITE || c == PRIVILEGED_REGISTER_WRITE;
}

static bool is_register(enum privileged_command c)
{
	return c == PRIVILEGED_REGISTER_READ || c == PRIVILEGED_REGISTER_WRITE;
}

/* --- asking ----------------------------------------------------------------------------------- */

static void put_command(const struct control_raw *r, struct buf *out)
{
	char *digits;

	buf_printf(out, "%s 0x%llx ", privileged_row(r->command)->name,
		(unsigned long long)r->address);
	if (!r->bytes) {
		buf_printf(out, "%zu", r->size);
		return;
	}
	digits = buf_room(out, 2 * r->size + 1);
	if (digits) {
		hex_put(r->bytes, r->size, digits);
		out->len += 2 * r->size;
	}
}

static void put_reason(uint64_t address, size_t size, const void *bytes, char *ret, size_t room)
{
	char digest[SHA256_HEX_SIZE] = "";

	if (bytes)
		sha256_hex(bytes, size, digest);
	snprintf(ret, room, "raw access, %zu bytes at 0x%llx%s%s", size,
		(unsigned long long)address, bytes ? ", SHA-256 " : "", digest);
}

int control_raw_run(struct privileged *gate, const struct cred *who, const struct control_raw *raw,
	struct fault *f)
{
	AUTO_BUF struct buf command = BUF_INIT;
	char reason[PRIVILEGED_REASON_MAX + 1];

	put_command(raw, &command);
	if (buf_error(&command))
		return fault_set(f, -ENOMEM, "try again", "no memory for the access");
	put_reason(raw->address, raw->size, raw->bytes, reason, sizeof reason);
	return privileged_run(gate, who, buf_text(&command), reason, f);
}

/* --- acting ----------------------------------------------------------------------------------- */

/* The length that the arguments give, and where the bytes to be written begin. */
static int read_args(enum privileged_command c, const char *args, struct engine_access *ret,
	const char **ret_digits)
{
	unsigned long long address, size;
	int n = 0;
	char end;

	if (is_write(c) ? sscanf(args, "0x%16llx %n", &address, &n) != 1 || !n
			: sscanf(args, "0x%16llx %7llu%c", &address, &size, &end) != 2)
		return -EINVAL;
	*ret_digits = args + n;
	if (is_write(c) && strlen(*ret_digits) % 2)
		return -EINVAL;
	ret->registers = is_register(c);
	ret->address = address;
	ret->size = is_write(c) ? strlen(*ret_digits) / 2 : (size_t)size;
	if (ret->registers)
		return ret->size == DEVICE_REGISTER_BYTES && address % DEVICE_REGISTER_BYTES == 0
			? 0
			: -EINVAL;
	return ret->size && ret->size <= CONTROL_RAW_MAX ? 0 : -EINVAL;
}

static int refuse_args(enum privileged_command c, struct fault *f)
{
	if (is_register(c))
		return fault_set(f, -EINVAL, "read or write 4 bytes at a multiple of 4",
			"a register has %d bytes", DEVICE_REGISTER_BYTES);
	return fault_set(f, -EINVAL, "access less at once", "an access has 1 to %d bytes",
		CONTROL_RAW_MAX);
}

int control_raw_act(struct engine *e, enum privileged_command command,
	const struct privileged_order *o, struct buf *out, struct fault *f)
{
	AUTO_BUF struct buf bytes = BUF_INIT;
	struct engine_access access = { .registers = false };
	const struct engine_order order = { .what = is_write(command) ? ENGINE_WRITE : ENGINE_READ,
		.access = &access,
		.force = o->forced,
		.only = o->approved,
		.generation = o->generation };
	const char *digits;
	int err = read_args(command, o->args, &access, &digits);

	if (err)
		return refuse_args(command, f);
	access.bytes = buf_room(&bytes, access.size);
	if (!access.bytes)
		return fault_set(f, -ENOMEM, "try again", "no memory for the access");
	if (is_write(command) && !hex_get(digits, access.bytes, access.size))
		return refuse_args(command, f);
	err = engine_operate(e, &order, f);
	if (err || is_write(command))
		return err;
	put_reason(access.address, access.size, access.bytes, o->told, AUDIT_MESSAGE_MAX);
	buf_put(out, access.bytes, access.size);
	return buf_error(out);
}
