/* npufs STORE MOUNTPOINT [-o options]: reads the command line, mounts, becomes a daemon, serves
 * until it is told to stop or is unmounted, and tears down in order:
 *
 *   stop taking jobs, drain -> engine ends -> last results announced -> parked requests answered
 *   -> unmount -> memory
 *
 * After mounting, while there is one thread, it gives up every privilege; what that takes at the end,
 * a process does that was made before (fs/keeper.h).
 *
 * SIGTERM and SIGINT stop it; a thread of its own waits for them, so that draining never holds up
 * the file system. SIGHUP is taken and does nothing, so that a closed terminal leaves no dead
 * mount. */
#include "fs/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/files.h"
#include "core/base/lock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/control/jobaudit.h"
#include "core/control/privilege.h"
#include "core/device_layer.h"
#include "core/engine/metrics.h"
#include "core/engine/trace.h"
#include "fs/announce.h"
#include "fs/keeper.h"
#include "fs/mountpoint.h"
#include "fs/notify.h"
#include "fs/park.h"

#define EXIT_USAGE    2
#define LAST_READS_MS 500  /* a stop waits so long for those who have files open */
#define LAST_NEWS_MS  500  /* and so long to announce results */
#define STOP_SLACK_MS 5000 /* and takes so long for a device that hangs, and for tearing down */

struct command {
	const char *store, *mountpoint;
	bool help, version;
};

static int complain(const struct fault *f)
{
	fprintf(stderr, "npufs: %s\n", f->reason);
	if (f->action[0])
		fprintf(stderr, "npufs: %s\n", f->action);
	return 1;
}

/* --- the command line ------------------------------------------------------------------------- */

static void usage(FILE *to)
{
	AUTO_BUF struct buf text = BUF_INIT;

	options_help(&text);
	fprintf(to,
		"usage: npufs STORE MOUNTPOINT [-f] [-d] [-o option,option,...]\n"
		"       npufs --help | --version\n\n"
		"Mounts the NPU, with the models of STORE, as files at MOUNTPOINT.\n"
		"  -f  stay in the foreground   -d  debug messages, in the foreground\n\n"
		"%s",
		buf_text(&text));
}

/* mount(8) gives -o, -n, -s and -v; they mean nothing here. */
static int parse_command(int argc, char **argv, struct command *cmd, struct mount_options *o,
	struct fault *f)
{
	int err = 0;

	for (int i = 1; !err && i < argc; i++) {
		const char *a = argv[i];

		if (strcmp(a, "-o") == 0 && i + 1 < argc)
			err = options_parse(argv[++i], o, f);
		else if (strncmp(a, "-o", 2) == 0 && a[2])
			err = options_parse(a + 2, o, f);
		else if (strcmp(a, "-h") == 0 || strcmp(a, "--help") == 0)
			cmd->help = true;
		else if (strcmp(a, "-V") == 0 || strcmp(a, "--version") == 0)
			cmd->version = true;
		else if (strcmp(a, "-f") == 0)
			o->foreground = true;
		else if (strcmp(a, "-d") == 0)
			o->debug = o->foreground = true;
		else if (strcmp(a, "-n") == 0 || strcmp(a, "-s") == 0 || strcmp(a, "-v") == 0)
			continue;
		else if (a[0] == '-' && a[1])
			err = fault_set(f, -EINVAL, "see npufs --help", "unknown argument %s", a);
		else if (!cmd->store)
			cmd->store = a;
		else if (!cmd->mountpoint)
			cmd->mountpoint = a;
		else
			err = fault_set(f, -EINVAL, "see npufs --help", "one argument too many: %s",
				a);
	}
	if (!err && !cmd->help && !cmd->version && !cmd->mountpoint)
		err = fault_set(f, -EINVAL, "see npufs --help",
			"a STORE and a MOUNTPOINT are needed");
	return err;
}

/* --- starting --------------------------------------------------------------------------------- */

/* With -o fault a layer stands over the backend, which fails as it is told. */
static int plant_faults(const struct mount_options *o, const struct device_ops **ops,
	struct fault *f)
{
	struct fault_plan plan;
	int err = o->fault[0] ? fault_plan_parse(o->fault, &plan, f) : 0;

	if (err || !o->fault[0])
		return err;
	*ops = device_layer_over(*ops);
	device_layer_plan(LAYER_DEVICE, &plan);
	return 0;
}

/* What can be wrong before the mount is there is said at once, to the terminal. */
static int open_store(struct npufs *fs, const char *store, const struct device_ops **ret_ops,
	struct fault *f)
{
	AUTO_FREE char *whole = realpath(store, NULL);
	struct stat st;
	int err = device_find(fs->opts.device, ret_ops, f);

	if (!err)
		err = plant_faults(&fs->opts, ret_ops, f);
	if (!err && (!whole || stat(whole, &st) < 0))
		err = fault_set(f, -errno, "make one: npufs-admin store init STORE",
			"no store at %s: %s", store, strerror(errno));
	if (!err && !S_ISDIR(st.st_mode))
		err = fault_set(f, -ENOTDIR, "name the folder that npufs-admin store init made",
			"the store %s is no folder", store);
	if (!err)
		err = models_new(whole, *ret_ops, &fs->models, f);
	if (!err && fs->opts.model[0])
		err = models_set_default(fs->models, fs->opts.model, f);
	if (!err)
		fs->store = take_ptr(whole);
	return err;
}

static int mount_at(struct npufs *fs, const char *mountpoint, struct fault *f)
{
	bool everyone = geteuid() == 0 && !fs->opts.private;
	char *argv[] = { "npufs", "-o", "fsname=npufs,subtype=npufs,nosuid,nodev,noexec,noatime",
		everyone ? "-oallow_other" : NULL, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(everyone ? 4 : 3, argv);

	fs->session = fuse_session_new(&args, &fs_ops, sizeof fs_ops, fs);
	fuse_opt_free_args(&args);
	fs->mountpoint = mountpoint;
	if (fs->session && fuse_session_mount(fs->session, mountpoint) == 0)
		return 0;
	if (fs->session)
		fuse_session_destroy(fs->session);
	fs->session = NULL;
	return fault_set(f, -EIO,
		"see the message above; is fuse3 installed, and /dev/fuse open to this user?",
		"mounting failed");
}

/* A start failed when the mount was there already. */
static void undo_mount(struct npufs *fs)
{
	if (!fs->session)
		return;
	keeper_unmount(fs->keeper, fs->session);
	fuse_session_destroy(fs->session);
}

/* The folder, or one on the way to it, may be closed to all but another user. */
static int reach(const char *path, const char *what, struct fault *f)
{
	AUTO_CLOSE int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 || errno != EACCES)
		return 0;
	return fault_set(f, -EACCES,
		"open the folders on the way to it to this user, or mount with "
		"keep_caps=dac_read_search",
		"the %s cannot be reached without privileges", what);
}

/* Announcing and the service manager's watchdog look at the mount as users do. */
static int give_up_privileges(struct npufs *fs, uint64_t keep, struct fault *f)
{
	int err = keeper_start(fs->mountpoint, &fs->keeper, f);

	if (!err)
		err = privilege_drop(keep, f);
	if (!err)
		err = reach(fs->store, "store", f);
	if (!err && (fs->opts.inotify || notify_wanted()))
		err = reach(fs->mountpoint, "mountpoint", f);
	return err;
}

/* The parent leaves when the child serves; a session of its own keeps it alive when the terminal
 * goes. Nothing of the caller's stays open, so that a pipe behind the command ends; with log=stderr
 * that one stays. */
static int become_daemon(const struct mount_options *o)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready) < 0)
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0) {
		close(ready[1]);
		_exit(read(ready[0], &byte, 1) == 1 ? 0 : 1);
	}
	setsid();
	if (chdir("/") < 0 || !freopen("/dev/null", "r", stdin) ||
		!freopen("/dev/null", "w", stdout))
		return -EIO;
	if (o->log != OPTION_LOG_STDERR && !freopen("/dev/null", "w", stderr))
		return -EIO;
	if (write(ready[1], "", 1) != 1)
		return -EIO;
	close(ready[0]);
	close(ready[1]);
	return 0;
}

static int start_engine(struct npufs *fs, const struct device_ops *ops)
{
	const struct mount_options *o = &fs->opts;
	const struct engine_config config = {
		.ops = ops,
		.device = {
			.threads = o->threads,
			.step_delay_us = (unsigned)o->sim_delay_us,
			.kv_sequences = o->kv_sequences,
			.dump_ini = o->dump_ini,
		},
		.max_active = o->max_active,
		.queue_limit = o->queue,
		.user_limit = o->user_queue,
		.output_bytes = o->output_size,
		.batch_bytes = o->batch_size,
		.file_bytes = o->batch_size,
		.wait_limit_ns = (int64_t)o->wait_limit_us * 1000,
		.golden_ns = (int64_t)o->golden_us * 1000,
		.pairs = o->parallel == OPTION_PARALLEL_PROVEN,
		.store = fs->store,
		.sessions = {
			.all = o->sessions,
			.user = o->user_sessions,
			.idle_ns = (int64_t)o->session_idle_us * 1000,
		},
	};
	const struct jobdir_limits limits = {
		.files = o->max_files,
		.bytes = o->max_bytes,
		.user_files = o->user_files,
		.user_bytes = o->user_bytes,
		.request_bytes = o->request_size,
		.batch_bytes = o->batch_size,
		.keep_ns = (int64_t)o->keep_us * 1000,
		.durable = o->durable,
		.depth = o->max_depth,
		.umask = o->jobs_umask,
	};
	struct control_config control = { .store = fs->store,
		.models = fs->models,
		.health = &fs->health,
		.raw_access = o->raw_access,
		.approvals = o->approvals };
	int err = engine_new(&config, fs->models, &fs->health, &fs->engine);

	control.engine = fs->engine;
	if (!err && o->job_audit == OPTION_JOB_AUDIT_ON)
		err = jobaudit_start(fs->store);
	if (!err)
		err = control_new(&control, &fs->control);
	if (!err)
		err = jobdir_new(&limits, fs->spool, fs->engine, fs->models, JOBS_ROOT_ID,
			&fs->jobs);
	if (!err && o->inotify)
		err = announce_start(fs, &fs->announcer);
	if (!err)
		err = jobdir_load(fs->jobs);
	return err ? err : notify_start(fs);
}

/* --- serving and stopping --------------------------------------------------------------------- */

static atomic_bool stopped; /* the engine was stopped by the signal thread */
static atomic_bool stuck;   /* it did not come back from the device */
static atomic_bool left;    /* the loop has ended */

static volatile sig_atomic_t woken; /* the loop is to tidy up */

static void wake(int signal)
{
	(void)signal;
	woken = 1;
}

static void stop_engine(struct npufs *fs)
{
	uint64_t drain_ms = fs->opts.drain_us / 1000;

	if (atomic_exchange(&stopped, true))
		return;
	notify_stopping(drain_ms + LAST_READS_MS + LAST_NEWS_MS + STOP_SLACK_MS);
	atomic_store(&stuck, engine_stop(fs->engine, (int64_t)drain_ms) != 0);
}

/* Who was given a result at the last moment comes back for its end, and closes. */
static void wait_for_readers(struct npufs *fs)
{
	for (int i = 0; i < LAST_READS_MS && fs->n_open; i++)
		usleep(1000);
}

struct watch {
	struct npufs *fs;
	sigset_t signals;
	pthread_t loop;
};

/* The loop sleeps in read(2); a signal without SA_RESTART wakes it, again and again until it has
 * seen the flag. */
static void end_loop(const struct watch *w)
{
	fuse_session_exit(w->fs->session);
	while (!atomic_load(&left)) {
		pthread_kill(w->loop, SIGUSR1);
		usleep(1000);
	}
}

/* True for SIGHUP, and with 0 each second. */
static bool wait_for_signal(const struct watch *w, int *ret_signal)
{
	const struct timespec second = { .tv_sec = 1 };
	int got = sigtimedwait(&w->signals, NULL, &second);

	*ret_signal = got < 0 ? 0 : got;
	return got < 0 || got == SIGHUP;
}

static void *watch_signals(void *arg)
{
	struct watch *w = arg;
	int signal = 0;

	while (wait_for_signal(w, &signal))
		if (signal == SIGHUP)
			log_info("SIGHUP: there is nothing to read anew");
		else
			pthread_kill(w->loop, SIGUSR1); /* it tidies up */
	if (!atomic_load(&left)) {
		stop_engine(w->fs);
		wait_for_readers(w->fs);
		if (w->fs->announcer)
			announce_stop(w->fs->announcer, LAST_NEWS_MS);
		notify_stop();
		end_loop(w);
	}
	return NULL;
}

static void serve(struct npufs *fs)
{
	struct fuse_buf buf = { .mem = NULL };
	int n;

	while (!fuse_session_exited(fs->session)) {
		n = fuse_session_receive_buf(fs->session, &buf);
		if (woken) {
			woken = 0;
			jobdir_tidy(fs->jobs);
			if (sessions_tidy(engine_sessions(fs->engine)))
				engine_wake(fs->engine);
		}
		if (n == -EINTR)
			continue;
		if (n <= 0)
			break;
		fuse_session_process_buf(fs->session, &buf);
	}
	free(buf.mem);
}

static int serve_until_told(struct npufs *fs)
{
	struct watch w = { .fs = fs, .loop = pthread_self() };
	struct sigaction quiet = { .sa_handler = wake };
	pthread_t watcher;

	sigaction(SIGUSR1, &quiet, NULL);
	sigemptyset(&w.signals);
	sigaddset(&w.signals, SIGTERM);
	sigaddset(&w.signals, SIGINT);
	sigaddset(&w.signals, SIGHUP);
	if (pthread_create(&watcher, NULL, watch_signals, &w))
		return -ENOMEM;
	serve(fs);
	atomic_store(&left, true);
	pthread_kill(watcher, SIGTERM);
	pthread_join(watcher, NULL);
	stop_engine(fs);
	return 0;
}

/* Every open file of jobs/ is one of the spool too. */
static void raise_file_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* Before any thread: every thread inherits that signals go to the watcher. */
static void block_signals(void)
{
	sigset_t all;

	sigemptyset(&all);
	sigaddset(&all, SIGTERM);
	sigaddset(&all, SIGINT);
	sigaddset(&all, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* The device's thread still uses what would be freed: the mount goes, the memory with the process. */
static void leave_stuck(struct npufs *fs)
{
	log_error("the device did not come back in time; leaving without it");
	if (fs->control)
		control_leave(fs->control);
	keeper_unmount(fs->keeper, fs->session);
	jobaudit_stop();
	log_close();
	_exit(1);
}

static void tear_down(struct npufs *fs)
{
	park_abort_all();
	if (atomic_load(&stuck))
		leave_stuck(fs);
	if (fs->control)
		control_stop(fs->control);
	fs_close_all(fs);
	keeper_unmount(fs->keeper, fs->session);
	if (fs->announcer) /* what the threads wait for, if the loop left them waiting, is over */
		announce_stop(fs->announcer, 0);
	notify_stop();
	jobdir_free(fs->jobs);
	spool_close(fs->spool); /* answers who waits for the disk */
	fuse_session_destroy(fs->session);
	control_free(fs->control);
	engine_free(fs->engine);
	jobaudit_stop();
	trace_done();
	announce_free(fs->announcer);
	models_free(fs->models);
	health_done(&fs->health);
}

/* The runtime chooses the names of what it writes there; it is nobody else's to see. */
static int enter_diagnostic(const struct npufs *fs)
{
	AUTO_CLOSE int store = -1, dir = -1;
	int err = files_open_root(fs->store, FILES_OWN, &store);

	if (err)
		return err;
	if (mkdirat(store, "diagnostic", 0700) < 0 && errno != EEXIST)
		return -errno;
	err = files_open_folder(store, "diagnostic", FILES_OWN, &dir);
	if (err)
		return err;
	return fchmod(dir, 0700) < 0 || fchdir(dir) < 0 ? -errno : 0;
}

static int run_mounted(struct npufs *fs, const struct device_ops *ops)
{
	int err = fs->opts.foreground ? 0 : become_daemon(&fs->opts);

	log_open(fs->opts.log == OPTION_LOG_SYSLOG ||
			(fs->opts.log == OPTION_LOG_AUTO && !fs->opts.foreground),
		fs->opts.debug ? LEVEL_DEBUG : LEVEL_INFO);
	metrics_start(NPUFS_VERSION);
	health_init(&fs->health, ops, models_alias(fs->models, models_default(fs->models)));
	if (!err && fs->opts.dump_ini)
		err = enter_diagnostic(fs);
	if (!err)
		err = start_engine(fs, ops);
	if (!err)
		err = serve_until_told(fs);
	if (err && fs->engine)
		stop_engine(fs);
	if (err)
		log_error("cannot serve: %s", strerror(-err));
	return err;
}

int main(int argc, char **argv)
{
	static struct npufs fs = { .keeper = KEEPER_NONE };
	struct command cmd = { 0 };
	struct fault f = FAULT_NONE;
	const struct device_ops *ops;
	AUTO_FREE char *mountpoint = NULL;
	uint64_t keep = 0;
	int err;

	options_defaults(&fs.opts);
	if (parse_command(argc, argv, &cmd, &fs.opts, &f)) {
		complain(&f);
		return EXIT_USAGE;
	}
	if (cmd.help)
		usage(stdout);
	if (cmd.version)
		printf("npufs %s\n", NPUFS_VERSION);
	if (cmd.help || cmd.version)
		return 0;
	privilege_no_core();
	umask(077);
	fs.uid = (uint32_t)geteuid();
	fs.gid = (uint32_t)getegid();
	fs.started = clock_wall();
	fs.generation = (uint32_t)(fs.started / NS_PER_MS) | 1;
	block_signals();
	raise_file_limit();
	notify_open();
	if (roles_set(&fs.roles, fs.uid, fs.opts.operator_group, fs.opts.trace_group, &f) ||
		privilege_parse(fs.opts.keep_caps, &keep, &f) ||
		open_store(&fs, cmd.store, &ops, &f) ||
		mountpoint_prepare(cmd.mountpoint, &mountpoint, &f) ||
		spool_open(fs.store, SPOOL_USE, &fs.spool, &f) || mount_at(&fs, mountpoint, &f) ||
		give_up_privileges(&fs, keep, &f)) {
		undo_mount(&fs);
		spool_close(fs.spool);
		models_free(fs.models);
		return complain(&f);
	}
	err = run_mounted(&fs, ops);
	tear_down(&fs);
	log_close();
	return err ? 1 : 0;
}
