# npufs: build, test, measure. `make help` lists what there is.

V       ?= 0
SAN     ?=
T       ?=
WERROR  ?= 0
CC      ?= cc
DESTDIR ?=
PREFIX  ?= /usr/local
STORE   ?= build/store

comma := ,
BUILD ?= build$(if $(SAN),/san-$(subst $(comma),-,$(SAN)))$(if $(filter clang%,$(CC)),/$(CC))
Q     := $(if $(filter 1,$(V)),,@)

PACKAGES := libfuse3-dev libcjson-dev libssl-dev libcmocka-dev pkg-config fuse3

CPPFLAGS += -I. -D_GNU_SOURCE -MMD -MP
OPT      ?= -O2
CFLAGS   += -std=gnu11 $(OPT) -g -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wvla -Wformat=2 -Wundef -fno-common -fstack-protector-strong
ifeq ($(WERROR),1)
CFLAGS += -Werror
endif
LDLIBS_CORE := -lcjson -lcrypto -lm -lpthread
ifneq ($(SAN),)
CFLAGS  += -fsanitize=$(SAN) -fno-omit-frame-pointer -DNPUFS_DEBUG=1
CFLAGS  += $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=undefined)
LDFLAGS += -fsanitize=$(SAN)
else
CPPFLAGS += -D_FORTIFY_SOURCE=2
endif

CORE_SRC  := $(wildcard core/*.c core/sim/*.c)
OPT_SRC   := $(wildcard mountopts/*.c)
FS_SRC    := $(wildcard fs/*.c)
ADMIN_SRC := $(wildcard core/admin/*.c)
UNIT_SRC  := $(wildcard tests/unit_*.c)
TOOL_SRC  := $(wildcard tests/tool_*.c)
FUZZ_SRC  := $(wildcard tests/fuzz/fuzz_*.c)

obj = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIB_OBJ   := $(call obj,$(CORE_SRC) $(OPT_SRC))
ADMIN_LIB := $(filter-out %/admin_main.o,$(call obj,$(ADMIN_SRC)))
UNITS     := $(patsubst tests/%.c,$(BUILD)/tests/%,$(UNIT_SRC))
TOOLS     := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TOOL_SRC))

.DELETE_ON_ERROR:
.SUFFIXES:
.SECONDARY:
.PHONY: all help deps demo store test unit mount-test docs-test check-layers fuzz fuzz-short bench \
	coverage lint install clean programs

all: programs ## build npufs and npufs-admin (default)

programs: $(BUILD)/npufs $(BUILD)/npufs-admin

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'
	@echo "variables: V=1 WERROR=1 SAN=address,undefined|thread T=pattern CC= STORE= DESTDIR= PREFIX="

# --- building --------------------------------------------------------------------------------------

$(BUILD)/fs/%.o: CPPFLAGS += $(shell pkg-config --cflags fuse3)
# The arithmetic: vectorised, but with every IEEE rule that matters to it kept.
$(BUILD)/core/sim/%.o: CFLAGS += -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast

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

$(BUILD)/tests/unit_%: $(BUILD)/tests/unit_%.o $(ADMIN_LIB) $(LIB_OBJ)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS_CORE)

$(BUILD)/tests/tool_%: $(BUILD)/tests/tool_%.o $(LIB_OBJ)
	$(if $(Q),@echo "  LINK  $@")
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS_CORE)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
