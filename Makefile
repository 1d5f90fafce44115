# npufs: build, test, measure. `make help` lists what there is.

V       ?= 0
SAN     ?=
T       ?=
WERROR  ?= 0
CC      ?= cc
DESTDIR ?=
PREFIX  ?= /usr/local
STORE   ?= build/store
# At once: unit tests, and mount tests, which mostly wait.
JOBS    ?= 2
MOUNTS  ?= 4
CALRT_SDK ?=

comma := ,
BUILD ?= build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))$(if $(filter clang%,$(CC)),/$(CC))
ifeq ($(origin CXX),default)
CXX := $(if $(filter clang%,$(CC)),$(subst clang,clang++,$(CC)),g++)
endif
Q     := $(if $(filter 1,$(V)),,@)

PACKAGES := libfuse3-dev libcjson-dev libssl-dev pkg-config fuse3
TEST_PACKAGES := libcmocka-dev g++ python3 inotify-tools

CPPFLAGS += -I. -D_GNU_SOURCE -MMD -MP
OPT      ?= $(if $(SAN),-O1,-O2)
CFLAGS   += -std=gnu11 $(OPT) -g -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wvla -Wformat=2 -Wundef -fno-common -fstack-protector-strong
ifeq ($(WERROR),1)
CFLAGS += -Werror
endif
LDLIBS_CORE := -lcjson -lcrypto -lm -lpthread -ldl
ifneq ($(SAN),)
CFLAGS  += -fsanitize=$(SAN) -fno-omit-frame-pointer -DNPUFS_DEBUG=1
CFLAGS  += $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=undefined)
LDFLAGS += -fsanitize=$(SAN)
# What a function leaves behind on the stack is not to be used either.
export ASAN_OPTIONS ?= detect_stack_use_after_return=1
# Clang's runtime looks for what throws at the start, before the adapter brings C++ with it.
LDLIBS_CORE += $(if $(filter clang%,$(CC)),-Wl$(comma)--no-as-needed -lstdc++)
else
CPPFLAGS += -D_FORTIFY_SOURCE=2
endif
# The headers of core/ are C: struct and function names meet in them, which -Wshadow minds in C++. The
# daemon is linked as C, without what C++'s own sanitizers need.
CXXFLAGS += -std=c++17 -fPIC $(filter-out -std=% -Wshadow -Wstrict-prototypes -Wmissing-prototypes,$(CFLAGS)) \
	$(if $(findstring undefined,$(SAN)),-fno-sanitize=vptr$(if $(filter clang%,$(CC)),$(comma)function))

CORE_SRC  := $(filter-out core/admin/%,$(wildcard core/*.c core/*/*.c))
OPT_SRC   := $(wildcard mountopts/*.c)
FS_SRC    := $(wildcard fs/*.c)
ADMIN_SRC := $(wildcard core/admin/*.c)
UNIT_SRC  := $(wildcard tests/unit_*.c)
TOOL_SRC  := $(wildcard tests/tool_*.c)
FUZZ_SRC  := $(wildcard tests/fuzz/fuzz_*.c)

obj = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIB_OBJ   := $(call obj,$(CORE_SRC) $(OPT_SRC))
ADMIN_LIB := $(filter-out %/admin_main.o,$(call obj,$(ADMIN_SRC)))
FAKES     := $(call obj,$(wildcard tests/fake_*.c))
UNITS     := $(patsubst tests/%.c,$(BUILD)/tests/%,$(UNIT_SRC))
TOOLS     := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TOOL_SRC))

.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
.PHONY: all help deps demo store test unit mount-test docs-test check-layers fuzz fuzz-seeds bench \
	coverage lint install clean programs

all: programs ## build npufs and npufs-admin (default)

programs: $(BUILD)/npufs $(BUILD)/npufs-admin $(if $(CALRT_SDK),$(BUILD)/npufs-calrt.so)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'
	@echo "variables: V=1 WERROR=1 SAN=address,undefined|thread T=pattern CC= STORE= DESTDIR= PREFIX= CALRT_SDK="

# --- building --------------------------------------------------------------------------------------

$(BUILD)/fs/%.o: CPPFLAGS += $(shell pkg-config --cflags fuse3)
# The arithmetic: vectorised, but with every IEEE rule that matters to it kept.
$(BUILD)/core/sim/%.o $(BUILD)/pic/core/sim/%.o: CFLAGS += -O3 -fno-math-errno -fno-trapping-math \
	-ffp-contract=off
# GCC aligns what it puts on AddressSanitizer's own stack too little for wide vectors.
ifneq ($(findstring address,$(SAN)),)
$(BUILD)/core/sim/%.o $(BUILD)/pic/core/sim/%.o: CFLAGS += $(if $(filter clang%,$(CC)),,--param=asan-use-after-return=0)
endif
# Loops over all logits of a token.
$(BUILD)/core/engine/sampler.o $(BUILD)/core/tensor.o: CFLAGS += -O3

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $<")
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/npufs: $(call obj,$(FS_SRC)) $(LIB_OBJ)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(shell pkg-config --libs fuse3) $(LDLIBS_CORE)

$(BUILD)/npufs-admin: $(call obj,$(ADMIN_SRC)) $(LIB_OBJ)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS_CORE)

$(BUILD)/tests/unit_%: $(BUILD)/tests/unit_%.o $(FAKES) $(ADMIN_LIB) $(LIB_OBJ)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS_CORE)

# These count and refuse what the code under test allocates.
$(BUILD)/tests/unit_callable_% $(BUILD)/tests/tool_callables: LDFLAGS += $(foreach f,malloc calloc realloc aligned_alloc,-Wl$(comma)--wrap=$f)
$(BUILD)/tests/tool_callables: LDLIBS_CORE += -lcmocka

$(BUILD)/tests/tool_%: $(BUILD)/tests/tool_%.o $(LIB_OBJ)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS_CORE)

# --- the accelerator's SDK -------------------------------------------------------------------------

# CALRT_SDK=DIR, with DIR/include/calrt and DIR/lib, makes npufs-calrt.so, which the daemon loads for
# device=calrt. Tests make one against a double of the SDK, whether there is an SDK or not.
$(BUILD)/core/device_calrt.o: CPPFLAGS += -DNPUFS_LIBDIR='"$(PREFIX)/lib/npufs"'

CALRT_SRC    := core/device_calrt/device_calrt.cc
CALRT_MAP    := core/device_calrt/device_calrt.map
CALRT_LIB    ?= $(firstword $(wildcard $(CALRT_SDK)/lib/libcalrt*.so $(CALRT_SDK)/lib/libcalrt*.so.*))
ifneq ($(CALRT_SDK),)
ifeq ($(CALRT_LIB),)
$(error no libcalrt*.so in $(CALRT_SDK)/lib)
endif
endif
DOUBLE       := $(BUILD)/tests/calrt_sdk
DOUBLE_LIB   := $(DOUBLE)/lib/libcalrt.so
CALRT_DOUBLE := $(BUILD)/tests/npufs-calrt.so
PIC_CORE     := $(patsubst %.c,$(BUILD)/pic/%.o,$(wildcard core/device_sim.c core/device_soft*.c \
	core/sim/*.c core/base/json*.c) \
	$(addprefix core/callable/,consume.c image.c memory_soft.c packet.c vm.c vm_verify.c) \
	$(addprefix core/base/,buf.c decimal.c fault.c lock.c npu_error.c utf8.c) core/tensor.c)
CALRT_LINK    = $(CXX) $(CXXFLAGS) $(LDFLAGS) -shared $(if $(SAN),,-Wl,-z,defs)

# What goes into shared objects: nothing of it is seen from outside, or the daemon's own would be taken.
$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CC    $< (pic)")
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $@ $<

# An adapter: $(1).so against the headers in $(2) and the library $(3).
define adapter
$(1).o: $(CALRT_SRC) $(wildcard $(2)/calrt/*)
	@mkdir -p $$(@D)
	$$(if $$(Q),@echo "  CXX   $$@")
	$$(Q)$$(CXX) $$(CPPFLAGS) $$(CXXFLAGS) -isystem $(2) -c -o $$@ $$<

$(1).so: $(1).o $(BUILD)/pic/core/base/buf.o $(3) | $(CALRT_MAP)
	$$(if $$(Q),@echo "  LINK  $$@")
	$$(Q)$$(CALRT_LINK) -Wl,--version-script=$(CALRT_MAP) -Wl,-rpath,$(abspath $(dir $(3))) -o $$@ $$^
endef

$(eval $(call adapter,$(BUILD)/tests/npufs-calrt,tests/calrt_sdk/include,$(DOUBLE_LIB)))
ifneq ($(CALRT_SDK),)
$(eval $(call adapter,$(BUILD)/npufs-calrt,$(CALRT_SDK)/include,$(CALRT_LIB)))
endif

$(DOUBLE)/calrt_double.o: tests/calrt_sdk/calrt_double.cc
	@mkdir -p $(@D)
	$(if $(Q),@echo "  CXX   $<")
	$(Q)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -Itests/calrt_sdk/include -c -o $@ $<

$(DOUBLE_LIB): $(DOUBLE)/calrt_double.o $(PIC_CORE)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CALRT_LINK) -Wl,-soname,libcalrt.so -o $@ $^ $(LDLIBS_CORE)

$(BUILD)/tests/unit_device_calrt: | $(CALRT_DOUBLE)

# --- what there is to run --------------------------------------------------------------------------

deps: ## install the Debian packages that are missing
	@sh examples/deps.sh $(PACKAGES)

demo: deps ## install what is missing, build, mount, run the main job, show it, unmount
	@$(MAKE) --no-print-directory programs
	@BUILD=$(BUILD) sh examples/demo.sh

store: programs ## a store with the example models and a fresh signing key, in STORE=
	@BUILD=$(BUILD) sh examples/make-store.sh $(STORE)

test: ## unit, mount, document and layer tests
	@sh examples/deps.sh $(PACKAGES) $(TEST_PACKAGES)
	@for part in check-layers unit mount-test docs-test fuzz-seeds; do \
		$(MAKE) --no-print-directory $$part || exit 1; done

# A test program that fails stops the rest from being called passed, not from being run.
WORDS  := $(subst |, ,$(T))
CHOSEN := $(if $(T),$(foreach u,$(UNITS),$(if $(strip $(foreach w,$(WORDS),$(findstring $w,$(notdir $u)))),$u)),$(UNITS))

unit: programs $(CHOSEN) ## the unit tests; T=pattern chooses
	@[ -n "$(CHOSEN)" ] || { echo "no unit test has \"$(T)\" in its name"; exit 1; }
	@printf '%s\n' $(CHOSEN) | xargs -P $(JOBS) -I{} sh -c \
		'out=$$(timeout 300 {} 2>&1); code=$$?; printf "== %s\n%s\n" {} "$$out"; exit $$code'

mount-test: programs $(TOOLS) $(CALRT_DOUBLE) ## tests on real mounts (root); T=pattern chooses
	@BUILD=$(BUILD) SLOW=$(if $(SAN),5,2) python3 tests/mount/run.py -j $(MOUNTS) $(if $(T),-k '$(T)')

docs-test: programs ## the README's commands and tables against the program
	@BUILD=$(BUILD) python3 tests/docs/run.py

check-layers: ## who may include whom
	@sh tests/layers.sh

# --- fuzzing: libFuzzer, so clang ------------------------------------------------------------------

FUZZ_CC      ?= clang
FUZZ_BUILD   := build/fuzz
FUZZ_FLAGS   := -std=gnu11 -O1 -g -I. -D_GNU_SOURCE -fno-sanitize-recover=undefined
FUZZ_SECONDS ?= 60
FUZZERS      := $(patsubst tests/fuzz/%.c,$(FUZZ_BUILD)/%,$(FUZZ_SRC))
FUZZ_OBJ     := $(patsubst %.c,$(FUZZ_BUILD)/%.o,$(CORE_SRC))

$(FUZZ_BUILD)/core/%.o: core/%.c
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c -o $@ $<

$(FUZZ_BUILD)/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ_OBJ)
	$(if $(Q),@echo "  FUZZ  $@")
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer,address,undefined -o $@ $^ $(LDLIBS_CORE)

fuzz: $(FUZZERS) ## run every fuzz target for FUZZ_SECONDS=
	@for t in $(FUZZERS); do n=$${t##*/fuzz_}; mkdir -p $(FUZZ_BUILD)/corpus_$$n; \
		$$t -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=$(FUZZ_BUILD)/ \
			$(FUZZ_BUILD)/corpus_$$n $$(ls -d tests/fuzz/seeds_$$n tests/fuzz/crashes_$$n 2>/dev/null) \
			>$(FUZZ_BUILD)/log_$$n 2>&1 || { tail -50 $(FUZZ_BUILD)/log_$$n; exit 1; }; \
		echo "fuzz_$$n: $$(sed -n 's/^stat::number_of_executed_units: *//p' $(FUZZ_BUILD)/log_$$n) runs, no fault"; \
	done

# Any compiler, with the objects of the unit tests: with SAN= under a sanitizer.
REPLAYS := $(patsubst tests/fuzz/%.c,$(BUILD)/replay/%,$(FUZZ_SRC))

$(BUILD)/replay/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(BUILD)/tests/fuzz/replay.o $(LIB_OBJ)
	@mkdir -p $(@D)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS_CORE)

fuzz-seeds: $(REPLAYS) ## the fuzz targets' seeds and kept crashes, once each
	@for t in $(REPLAYS); do n=$${t##*/fuzz_}; printf 'fuzz_%s: ' $$n; \
		timeout 120 $$t $$(ls -d tests/fuzz/seeds_$$n tests/fuzz/crashes_$$n 2>/dev/null) || exit 1; done

# --- measuring and checking ------------------------------------------------------------------------

bench: programs $(TOOLS) ## ratios to the kernel's floor, tokens a second, memory, latency, callables
	@BUILD=$(BUILD) python3 tests/bench/run.py

coverage: ## line coverage of the unit tests (lcov)
	@$(MAKE) --no-print-directory BUILD=build/coverage OPT="-O0 --coverage" LDFLAGS=--coverage unit
	@lcov -q -c -d build/coverage -o build/coverage.info && lcov --summary build/coverage.info

lint: ## format, cppcheck, and clang with every warning an error
	@clang-format --dry-run -Werror $(shell git ls-files '*.c' '*.h' '*.cc')
	@cppcheck -q --enable=warning,performance,portability --error-exitcode=1 --std=c11 -I. -D_GNU_SOURCE \
		--suppress=missingIncludeSystem --suppressions-list=tests/cppcheck.txt core fs mountopts
	@$(MAKE) --no-print-directory CC=clang WERROR=1 programs

install: programs ## to DESTDIR and PREFIX
	install -D -m 755 $(BUILD)/npufs $(DESTDIR)$(PREFIX)/sbin/npufs
	install -D -m 755 $(BUILD)/npufs-admin $(DESTDIR)$(PREFIX)/sbin/npufs-admin
	$(if $(CALRT_SDK),install -D -m 755 $(BUILD)/npufs-calrt.so $(DESTDIR)$(PREFIX)/lib/npufs/npufs-calrt.so)
	sed 's|/usr/local/|$(PREFIX)/|' examples/host/npufs.service | install -D -m 644 /dev/stdin \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/npufs.service
	install -D -m 644 README.md $(DESTDIR)$(PREFIX)/share/doc/npufs/README.md

clean: ## remove build/
	rm -rf build

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
