#include "core/control/privilege.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/mem.h"

#define NAME_MAX_LEN 32
#define EXAMPLE      "write names as in capabilities(7) without cap_, such as ipc_lock+sys_rawio"

/* By their numbers; ended by NULL. */
static const char *const cap_names[] = {
	[CAP_CHOWN] = "chown",
	[CAP_DAC_OVERRIDE] = "dac_override",
	[CAP_DAC_READ_SEARCH] = "dac_read_search",
	[CAP_FOWNER] = "fowner",
	[CAP_FSETID] = "fsetid",
	[CAP_KILL] = "kill",
	[CAP_SETGID] = "setgid",
	[CAP_SETUID] = "setuid",
	[CAP_SETPCAP] = "setpcap",
	[CAP_LINUX_IMMUTABLE] = "linux_immutable",
	[CAP_NET_BIND_SERVICE] = "net_bind_service",
	[CAP_NET_BROADCAST] = "net_broadcast",
	[CAP_NET_ADMIN] = "net_admin",
	[CAP_NET_RAW] = "net_raw",
	[CAP_IPC_LOCK] = "ipc_lock",
	[CAP_IPC_OWNER] = "ipc_owner",
	[CAP_SYS_MODULE] = "sys_module",
	[CAP_SYS_RAWIO] = "sys_rawio",
	[CAP_SYS_CHROOT] = "sys_chroot",
	[CAP_SYS_PTRACE] = "sys_ptrace",
	[CAP_SYS_PACCT] = "sys_pacct",
	[CAP_SYS_ADMIN] = "sys_admin",
	[CAP_SYS_BOOT] = "sys_boot",
	[CAP_SYS_NICE] = "sys_nice",
	[CAP_SYS_RESOURCE] = "sys_resource",
	[CAP_SYS_TIME] = "sys_time",
	[CAP_SYS_TTY_CONFIG] = "sys_tty_config",
	[CAP_MKNOD] = "mknod",
	[CAP_LEASE] = "lease",
	[CAP_AUDIT_WRITE] = "audit_write",
	[CAP_AUDIT_CONTROL] = "audit_control",
	[CAP_SETFCAP] = "setfcap",
	[CAP_MAC_OVERRIDE] = "mac_override",
	[CAP_MAC_ADMIN] = "mac_admin",
	[CAP_SYSLOG] = "syslog",
	[CAP_WAKE_ALARM] = "wake_alarm",
	[CAP_BLOCK_SUSPEND] = "block_suspend",
	[CAP_AUDIT_READ] = "audit_read",
	[CAP_PERFMON] = "perfmon",
	[CAP_BPF] = "bpf",
	[CAP_CHECKPOINT_RESTORE] = "checkpoint_restore",
	NULL,
};

/* --- names ------------------------------------------------------------------------------------ */

static int find_name(const char *name, int *ret)
{
	for (int i = 0; cap_names[i]; i++)
		if (strcmp(cap_names[i], name) == 0) {
			*ret = i;
			return 0;
		}
	return -EINVAL;
}

static int unknown(const char *name, struct fault *f)
{
	bool prefixed = strncmp(name, "cap_", 4) == 0;
	const char *near = fault_nearest(prefixed ? name + 4 : name, cap_names);

	return fault_at(f, -EINVAL, "keep_caps", -1, EXAMPLE, "no capability \"%s\"%s%s%s", name,
		near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int parse_one(const char *name, size_t len, uint64_t *set, struct fault *f)
{
	char word[NAME_MAX_LEN] = "";
	int cap = 0;

	memcpy(word, name, len < sizeof word ? len : sizeof word - 1);
	if (len >= sizeof word || find_name(word, &cap))
		return unknown(word, f);
	*set |= PRIVILEGE(cap);
	return 0;
}

int privilege_parse(const char *names, uint64_t *ret, struct fault *f)
{
	bool more = names[0] != '\0';
	uint64_t set = 0;
	int err = 0;

	while (!err && more) {
		size_t len = strcspn(names, "+");

		err = parse_one(names, len, &set, f);
		more = names[len] == '+';
		names += len + more;
	}
	if (!err)
		*ret = set;
	return err;
}

/* --- giving up -------------------------------------------------------------------------------- */

void privilege_no_core(void)
{
	const struct rlimit none = { 0, 0 };

	prctl(PR_SET_DUMPABLE, 0);
	setrlimit(RLIMIT_CORE, &none);
}

/* glibc has no wrappers of these two; the third version's data are two words of 32 bits each. */
#define WORDS _LINUX_CAPABILITY_U32S_3

static int get_permitted(uint64_t *ret)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[WORDS] = { { 0 } };

	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	*ret = (uint64_t)data[1].permitted << 32 | data[0].permitted;
	return 0;
}

static int set_all(uint64_t set)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[WORDS];

	for (int i = 0; i < WORDS; i++) {
		uint32_t word = (uint32_t)(set >> (32 * i));

		data[i] = (struct __user_cap_data_struct){ .effective = word, .permitted = word };
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

/* Before the rest: it takes CAP_SETPCAP. It bounds what programs could get that are started, which
 * no_new_privs forbids as well. */
static void shrink_bounding_set(uint64_t keep)
{
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(keep & PRIVILEGE(cap)))
			prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

int privilege_limit(uint64_t keep)
{
	uint64_t had = 0;
	int err = get_permitted(&had);

	if (err)
		return err;
	shrink_bounding_set(keep);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return set_all(keep & had);
}

static int missing(uint64_t set, struct fault *f)
{
	int cap = __builtin_ctzll(set);

	return fault_at(f, -EPERM, "keep_caps", -1,
		"start it as a user who has it, or leave it out of keep_caps",
		"the capability %s cannot be kept: it was not given", cap_names[cap]);
}

int privilege_drop(uint64_t keep, struct fault *f)
{
	uint64_t had = 0;
	int err = get_permitted(&had);

	if (!err && (keep & ~had))
		return missing(keep & ~had, f);
	if (!err)
		err = privilege_limit(keep);
	if (!err && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		err = -errno;
	return err ? fault_set(f, err, "see what the system's log says of it",
			     "privileges could not be given up: %s", strerror(-err))
		   : 0;
}
