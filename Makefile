# Targets: all (libagent.so), uploader (libagent-uploader), deps, demo, test, test-unwind,
# test-unwind-deps, test-names, test-names-deps, test-backends, test-backends-deps, soak-backends,
# test-browser, browser-deps, picture,
# check, check-preload, heap-programs, heap-soak, storm, waits, restarts, storm-unwind,
# fuzz, coverage, lint, dist, test-dist, test-distros, clean-distros, bench, bench-names, bench-deps,
# test-aarch64, map, install, clean.
# Variables: CC=gcc|clang, SAN=address,undefined|thread (suites only), SUITES="check_x ..." or WHAT="pair1 ..." (run only
# these suites, or parts of bench), JOBS=N, V=1 (show commands), WERROR=1, PREFIX, DESTDIR,
# ARCH=aarch64 (by Debian's cross compiler; programs and suites run in qemu's user mode).
#
# Each source is compiled in two flavours: product (libagent.so), and test (-DLIBAGENT_TEST, where
# system calls can be answered by a suite). Each compiler and sanitizer has its own folders.

# Empty for the machine that make runs on.
ARCH    :=
MACHINE := $(or $(ARCH),$(shell uname -m))
CROSS   := $(if $(ARCH),$(ARCH)-linux-gnu-)
ifeq ($(origin CC),default)
CC := $(CROSS)gcc
endif
CXX     := $(CROSS)$(if $(findstring clang,$(CC)),clang++,g++)
SAN     :=
# Set by `make coverage` alone.
COVERAGE :=
WERROR  :=
SUITES  :=
PREFIX  := /usr/local
DESTDIR :=

JOBS    := $(shell nproc)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(JOBS) --no-print-directory
endif

comma   := ,
VARIANT := $(if $(WERROR),werror-)$(CC)$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(COVERAGE),-coverage)
PRODUCT := build/$(VARIANT)/product
TEST    := build/$(VARIANT)/test
PRELOAD := build/$(VARIANT)/preload
BENCH   := build/$(VARIANT)/bench
GEN     := build/generated
ARCHIVE := build/$(CROSS)third_party
LIBRARY := $(if $(ARCH),build/$(ARCH)/)libagent.so

SOURCES  := $(sort $(wildcard agent/*.c agent/*/*.c uploader/*.c))
SHIM     := $(sort $(wildcard shim/*.c))
PRODUCT_OBJECTS := $(patsubst %.c,$(PRODUCT)/%.o,$(SOURCES) $(SHIM))
TEST_OBJECTS    := $(patsubst %.c,$(TEST)/%.o,$(SOURCES))
SHIM_OBJECTS    := $(patsubst %.c,$(TEST)/%.o,$(SHIM))
THIRD_PARTY     := $(ARCHIVE)/demangle.o $(ARCHIVE)/compress.o $(ARCHIVE)/unpack.o

# ---- Flags -------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wundef -Wvla -Werror=missing-prototypes $(if $(WERROR),-Werror)
LANGUAGE := -std=gnu11 -O2 -D_GNU_SOURCE -I. -I$(GEN)
COMMON   := $(LANGUAGE) -g -MMD -MP $(WARNINGS)
# Two segments less (noseparate-code) are two mappings and two page faults less at each exec.
# The code that is preloaded. No fortify and no stack protector: their failure paths are names
# that musl lacks, or end the app's process; stacks are walked, so every function has its table.
AGENT    := -fPIC -fvisibility=hidden -ftls-model=initial-exec -fasynchronous-unwind-tables \
            -U_FORTIFY_SOURCE -fno-stack-protector -ffunction-sections -fdata-sections
# Calls of libgcc, which asks the processor by a name that musl lacks.
AGENT    += $(if $(filter aarch64,$(MACHINE)),-mno-outline-atomics)
# What ships is the same wherever it is built (make test-dist).
NO_PLACE := -ffile-prefix-map=$(CURDIR)=.
# gcc warns of each fence that ThreadSanitizer does not understand.
SANITIZE := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer \
            $(if $(findstring gcc,$(CC)),-Wno-tsan))
# Counted atomically: threads, handlers and forked children count, too.
SANITIZE += $(if $(COVERAGE),--coverage -fprofile-update=atomic)
LINK_SO  := -shared -nodefaultlibs -Wl,-soname,libagent.so -Wl,-z,now -Wl,-z,relro \
            -Wl,-z,nodelete -Wl,-z,noexecstack -Wl,-z,noseparate-code -Wl,--gc-sections \
            -Wl,--no-undefined \
            -Wl,--build-id -Wl,--version-script=preload.map
CHECK_LIBS := -Wl,--as-needed -lcheck -lsubunit -lprotobuf-c -ljansson -lunwind -lz -lzstd -lm -lrt \
              -lpthread -ldl

# ---- The product -------------------------------------------------------------------------------

ifndef V
.SILENT:
endif
say = printf '  %-5s %s\n' $(1) $@

.PHONY: all uploader deps demo test test-unwind test-unwind-deps check check-address,undefined check-thread check-preload storm waits coverage lint bench \
    bench-deps map deps-aarch64 test-aarch64 install clean objects
.DELETE_ON_ERROR:
.SECONDARY:

# Moved into place, so that a process that has the old file mapped keeps it whole.
all: $(PRODUCT)/libagent.so
	mkdir -p $(dir $(LIBRARY))
	cmp -s $< $(LIBRARY) || { cp $< build/libagent.so.new && mv build/libagent.so.new $(LIBRARY); }

# What every process runs at its start comes first: it lies within the 64 KiB that the kernel maps with
# the file's headers, at one page fault.
STARTING := $(filter $(patsubst %,$(PRODUCT)/%,agent/agent.o agent/life.o \
    agent/alloc/alloc_sample.o agent/base/% shim/%), \
    $(PRODUCT_OBJECTS))

$(PRODUCT)/libagent.so: $(PRODUCT_OBJECTS) $(THIRD_PARTY) preload.map Makefile
	$(call say,LINK)
	$(CC) $(LINK_SO) -o $@ $(STARTING) $(filter-out $(STARTING),$(PRODUCT_OBJECTS)) $(THIRD_PARTY) \
	    -lc -lgcc

$(PRODUCT)/%.o: %.c Makefile
	mkdir -p $(@D); $(call say,CC)
	$(CC) $(COMMON) $(AGENT) $(NO_PLACE) -c -o $@ $<

# The page that shows a profile: before its data, and behind. Four spaces become a tab: that is a sixth of
# its size.
PAGE := agent/export/page
PAGE_SCRIPTS := $(sort $(wildcard $(PAGE)/page_*.js)) $(PAGE)/page.js
TABS := sed -e :a -e 's/^\(\t*\)    /\1\t/' -e ta

$(GEN)/page_head.html: $(PAGE)/page.html $(PAGE)/page.css $(PAGE_SCRIPTS) Makefile
	mkdir -p $(@D); $(call say,PAGE)
	cat $(PAGE_SCRIPTS) > $(GEN)/page.js
	sed -e '\,^/\* page.css \*/$$,{' -e 'r $(PAGE)/page.css' -e 'd' -e '}' \
	    -e '\,^/\* page.js \*/$$,{' -e 'r $(GEN)/page.js' -e 'd' -e '}' $< | $(TABS) > $(GEN)/page.html
	sed '1,/^<!-- data -->$$/d' $(GEN)/page.html > $(GEN)/page_tail.html
	sed '/^<!-- data -->$$/,$$d' $(GEN)/page.html > $@

$(PRODUCT)/agent/export/page_parts.o $(TEST)/agent/export/page_parts.o: $(GEN)/page_head.html

# zstd, zlib, libiberty's demanglers and liblzma's decoder come from the distribution's archives: what
# the functions named here need, everything else of them local. Their heap and their checked printf are renamed
# to functions of ours: agent/export/demangle_heap.c for the demanglers, which do allocate;
# uploader/third_party.c for the compressors, which are given allocators and never use their own.
# zstd's trace hooks are weak and looked up in the app: they get names that no app has.
archive = $(shell $(CC) -print-file-name=$(1))
COMPRESS_ROOTS := deflateInit2_ deflate deflateEnd ZSTD_createCCtx_advanced ZSTD_freeCCtx \
    ZSTD_CCtx_setParameter ZSTD_compressStream2 ZSTD_isError ZSTD_getErrorCode
UNPACK_ROOTS := lzma_raw_buffer_decode inflateInit_ inflate inflateEnd ZSTD_createDCtx_advanced \
    ZSTD_freeDCtx ZSTD_decompressDCtx
DEMANGLE_ROOTS := cplus_demangle_v3 rust_demangle

# 1: archives, 2: functions wanted, 3: renamings
define third_party
mkdir -p $(@D); $(call say,LD)
$(CROSS)ld -r --gc-sections -o $@.all $(addprefix -u ,$(2)) $(foreach a,$(1),$(call archive,$(a)))
$(CROSS)objcopy $(addprefix --keep-global-symbol=,$(2)) \
    $(addprefix --redefine-sym ,$(3) __stack_chk_guard=third_party_stack_guard) $@.all $@
rm $@.all
endef

$(ARCHIVE)/demangle.o: Makefile
	$(call third_party,libiberty.a,$(DEMANGLE_ROOTS),malloc=demangle_malloc \
	    realloc=demangle_realloc free=demangle_free __sprintf_chk=demangle_sprintf_chk \
	    __snprintf_chk=demangle_snprintf_chk)

$(ARCHIVE)/compress.o: Makefile
	$(call third_party,libzstd.a libz.a,$(COMPRESS_ROOTS),malloc=third_party_malloc \
	    calloc=third_party_calloc free=third_party_free \
	    ZSTD_trace_compress_begin=third_party_trace_begin \
	    ZSTD_trace_compress_end=third_party_trace_end)

$(ARCHIVE)/unpack.o: Makefile
	$(call third_party,liblzma.a libzstd.a libz.a,$(UNPACK_ROOTS),malloc=third_party_malloc \
	    calloc=third_party_calloc free=third_party_free)

# The sender outside: the uploader's own objects and a main; with libc and libmicrohttpd.
SIDECAR_OBJECTS := $(patsubst %.c,$(PRODUCT)/%.o, \
    $(sort $(wildcard agent/base/*.c uploader/*.c uploader/sidecar/*.c)))

uploader: $(PRODUCT)/libagent-uploader
	cmp -s $< libagent-uploader || cp $< libagent-uploader

$(PRODUCT)/libagent-uploader: $(SIDECAR_OBJECTS) $(ARCHIVE)/compress.o Makefile
	$(call say,LINK)
	$(CC) -Wl,--gc-sections -Wl,--as-needed -o $@ $(SIDECAR_OBJECTS) $(ARCHIVE)/compress.o \
	    -lmicrohttpd -ldl

# The export map is a committed file; lint holds it against the list.
map:
	sh test/lint/make_map.sh shim/exports.list > preload.map

# The sender, too, where it has been built: it needs a library that the agent does not.
install: all $(if $(wildcard libagent-uploader),uploader)
	install -d $(DESTDIR)$(PREFIX)/lib/libagent $(DESTDIR)$(PREFIX)/include
	install -m 755 libagent.so $(DESTDIR)$(PREFIX)/lib/libagent/libagent.so
	install -m 644 agent/libagent.h $(DESTDIR)$(PREFIX)/include/libagent.h
	if [ -e libagent-uploader ]; then \
	    install -D -m 755 libagent-uploader $(DESTDIR)$(PREFIX)/bin/libagent-uploader; \
	else \
	    echo "libagent-uploader is not installed: make uploader builds it"; \
	fi

# What is handed out, made twice: both have to be the same.
.PHONY: dist
VERSION = $(shell sed -n 's/.*LIBAGENT_VERSION "\(.*\)"/\1/p' agent/libagent.h)
DIST    = build/dist/libagent-$(VERSION).tar.gz
LINKED_IN = $(foreach a,libzstd.a libz.a libiberty.a liblzma.a,$(call archive,$(a))) \
    $(shell $(CC) -print-libgcc-file-name)

dist: all uploader
	rm -rf build/dist && mkdir -p build/dist
	python3 uploader/sidecar/pack.py build/dist/again $(LINKED_IN)
	python3 uploader/sidecar/pack.py $(DIST) $(LINKED_IN)
	cmp build/dist/again $(DIST) && rm build/dist/again
	PYTHONDONTWRITEBYTECODE=1 python3 test/distros/check_dist.py $(DIST) $(LINKED_IN)
	echo $(DIST)

# Built in another folder, it is the same to the byte.
.PHONY: test-dist
ELSEWHERE = build/elsewhere/in/a/folder

test-dist: dist
	rm -rf build/elsewhere && mkdir -p $(ELSEWHERE)
	git ls-files -z | xargs -0 tar -cf - | tar -xf - -C $(ELSEWHERE)
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(MAKE) -C $(ELSEWHERE) dist
	cmp $(DIST) $(ELSEWHERE)/$(DIST) && rm -rf build/elsewhere

# In the user lands of Debian 11, 12 and 13. They are not in build: they have folders that are named
# like what the compiler writes there; clean-distros removes them.
.PHONY: test-distros clean-distros
DISTROS := /var/tmp/libagent-distros

test-distros: test-dist
	sh test/deps.sh distros
	sh test/distros/roots.sh $(DISTROS)
	PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 test/distros/user_lands.py $(DISTROS) $(DIST)

clean-distros:
	rm -rf $(DISTROS)

clean:
	rm -rf build libagent.so libagent-uploader

# ---- Module suites: test/check_NAME.c, each with all of agent/ and uploader/ -------------------

# Those of the other processor are left out.
OTHER_SUITES := $(if $(filter aarch64,$(MACHINE)),$(shell \
    sed -n 's,^\(check_[a-z_0-9]*\):.*,test/\1.c,p' test/aarch64.txt),test/check_unwind_aarch64.c)
SUITE_SOURCES := $(filter-out test/check_main.c $(OTHER_SUITES),$(wildcard test/check_*.c))
# What several suites use; also those of test/preload, which read profiles and run programs.
HELPER_SOURCES := $(filter-out $(SUITE_SOURCES) $(OTHER_SUITES) test/preload/check_% test/preload/prog_%, \
    $(wildcard test/*.c test/preload/*.c))
# A sanitizer calls dlsym before it is set up: its programs cannot have the hooks in them. That of
# threads keeps signals back until a thread is at a place that it knows: no instant is sampled then;
# nor does it know the actors of check_heap_model, which are no threads.
SUITE_PROGRAMS := $(patsubst test/%.c,$(TEST)/%, \
    $(filter-out $(if $(SAN),test/check_shim_%) \
    $(if $(findstring thread,$(SAN)),test/check_unwind_storm.c test/check_heap_model.c), \
    $(SUITE_SOURCES)))
HELPER_OBJECTS := $(patsubst %.c,$(TEST)/%.o,$(HELPER_SOURCES)) $(TEST)/profile.pb-c.o
RUNNER := $(if $(filter-out $(shell uname -m),$(ARCH)),$(shell command -v qemu-$(ARCH)))
RUN_SUITES := RUNNER='$(RUNNER)' SAN='$(or $(SAN),$(if $(COVERAGE),coverage))' sh test/run_suites.sh

check: $(if $(SUITES),$(addprefix $(TEST)/,$(SUITES)),$(SUITE_PROGRAMS))
	$(RUN_SUITES) $^

# Under sanitizers, of which two can run side by side: each waits for its threads most of the time.
check-address,undefined check-thread: check-%:
	$(MAKE) SAN=$* check

# What the module suites reach, a line for each file. A run of its own, for what is counted is not
# what ships: frames and timing differ.
coverage:
	find build/gcc-coverage -name '*.gcda' -delete 2> /dev/null; true
	$(MAKE) CC=gcc COVERAGE=1 check
	sh test/coverage.sh build/gcc-coverage/test

# Named, or make would take the rule below whenever one more of these files has to be made.
$(filter $(TEST)/check_shim_%,$(SUITE_PROGRAMS)): $(TEST)/check_shim_%: \
    $(TEST)/test/check_shim_%.o $(SHIM_OBJECTS) $(TEST)/helpers.a $(TEST)/agent.a
	$(call say,LINK)
	$(CC) $(SANITIZE) -o $@ $(LINKED) $(SUITE_MAP) $(CHECK_LIBS)

$(TEST)/check_%: $(TEST)/test/check_%.o $(TEST)/helpers.a $(TEST)/agent.a
	$(call say,LINK)
	$(CC) $(SANITIZE) -o $@ $(LINKED) $(SUITE_MAP) $(CHECK_LIBS)

# The agent is an archive: a suite may define a module's functions itself and so stand in for it.
# A group: what the agent takes from the shim (agent/base/next.h), the helpers give.
SUITE_MAP := -Wl,--version-script=test/suite.map
LINKED = $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group

$(TEST)/agent.a: $(TEST_OBJECTS) $(THIRD_PARTY)
$(TEST)/helpers.a: $(HELPER_OBJECTS)
$(TEST)/%.a:
	rm -f $@; $(call say,AR)
	$(CROSS)ar rcs $@ $^

$(TEST)/test/%.o: test/%.c Makefile | $(GEN)/profile.pb-c.h
	mkdir -p $(@D); $(call say,CC)
	$(CC) $(COMMON) -DLIBAGENT_TEST $(SANITIZE) -c -o $@ $<

# check_unwind_storm: 50 objects, of which four stand at one address and differ in their frames; the
# others are copies of a fifth. For longer, and with what it measures on the screen: storm-unwind.
STORM_ROOMS   := 24 280 552 1096 88
STORM_OBJECTS := $(patsubst %,$(TEST)/storm_frames%.so,0 1 2 3 4) $(TEST)/storm_throws.so
.PHONY: storm-unwind
UNWIND_STORM_SECONDS := 600

storm-unwind: $(TEST)/check_unwind_storm
	UNWIND_STORM_SECONDS=$(UNWIND_STORM_SECONDS) $<

# Exceptions by libgcc, as in any program: libunwind, which the reference is in, would take them over.
$(TEST)/check_unwind_storm: CHECK_LIBS := -Wl,--no-as-needed -lgcc_s $(CHECK_LIBS)
$(TEST)/check_unwind_storm: | $(STORM_OBJECTS)

$(TEST)/storm_frames%.so: test/storm/storm_frames.c Makefile
	mkdir -p $(@D); $(call say,LINK)
	$(CC) $(COMMON) -DROOM=$(word $(shell expr $* + 1),$(STORM_ROOMS)) -fPIC -shared \
	    $(if $(filter 4,$*),,-Wl$(comma)-Ttext-segment=0x7a0000000000) -o $@ $<

$(TEST)/storm_throws.so: test/storm/storm_throws.cc Makefile
	mkdir -p $(@D); $(call say,LINK)
	$(CXX) -O2 -g -D_GNU_SOURCE -I. $(PROGRAM_WARNINGS) -fPIC -shared -o $@ $<

# Fuzzing by clang's libFuzzer: test/fuzz/fuzz_NAME.c, in a build of its own.
.PHONY: fuzz fuzz-run
FUZZ_SECONDS := 300
FUZZ_TARGETS := $(patsubst test/fuzz/%.c,$(TEST)/%,$(wildcard test/fuzz/fuzz_*.c))

fuzz:
	$(MAKE) CC=clang SAN=fuzzer-no-link,address,undefined fuzz-run

fuzz-run: $(FUZZ_TARGETS)
	sh test/fuzz/run_fuzz.sh $(FUZZ_SECONDS) $^

$(TEST)/fuzz_%: $(TEST)/test/fuzz/fuzz_%.o $(TEST)/helpers.a $(TEST)/agent.a
	$(call say,LINK)
	$(CC) $(SANITIZE) -fsanitize=fuzzer -o $@ $(LINKED) $(CHECK_LIBS)

$(TEST)/profile.pb-c.o: $(GEN)/profile.pb-c.c Makefile
	mkdir -p $(@D); $(call say,CC)
	$(CC) $(COMMON) $(SANITIZE) -c -o $@ $<

$(TEST)/%.o: %.c Makefile
	mkdir -p $(@D); $(call say,CC)
	$(CC) $(COMMON) $(AGENT) -DLIBAGENT_TEST $(SANITIZE) -c -o $@ $<

$(GEN)/profile.pb-c.c: test/profile.proto
	mkdir -p $(@D); $(call say,PROTO)
	protoc-c --c_out=$(GEN) --proto_path=test $<

$(GEN)/profile.pb-c.h: $(GEN)/profile.pb-c.c ;


# ---- Whole programs under libagent.so: test/preload --------------------------------------------
# prog_NAME.c, prog_NAME.cc (C++), prog_musl_NAME.c (musl), prog_gcc_NAME.c (gcc), prog_clang_NAME.c are the
# programs; the lines
# /* CFLAGS: ... */ and /* LIBS: ... */ in them give their flags. check_NAME.c are the suites.

OTHER_PROGRAMS := $(if $(filter aarch64,$(MACHINE)),$(shell \
    sed -n 's,^\(prog_[a-z_0-9]*\):.*,$(PRELOAD)/\1,p' test/aarch64.txt))
PROGRAMS := $(filter-out $(OTHER_PROGRAMS),$(patsubst test/preload/%,$(PRELOAD)/%,$(basename $(wildcard test/preload/prog_*.c test/preload/prog_*.cc))))
PRELOAD_SUITES := $(patsubst test/preload/%.c,$(PRELOAD)/%,$(wildcard test/preload/check_*.c))
PROGRAM_WARNINGS := -Wall -Wextra $(if $(WERROR),-Werror)
flags_of = $$(sed -n 's,^/\* $(1): \(.*\) \*/$$,\1,p' $<)
build_program = mkdir -p $(@D); $(call say,PROG); \
    $(1) -g -D_GNU_SOURCE -I. -MMD -MP -MF $@.d -MT $@ $(PROGRAM_WARNINGS) $(call flags_of,CFLAGS) -o $@ $< $(call flags_of,LIBS)

check-preload: all $(if $(ARCH),,uploader) $(if $(SUITES),$(addprefix $(PRELOAD)/,$(SUITES)),$(PRELOAD_SUITES)) $(PROGRAMS)
	LIBAGENT_SO=$(CURDIR)/$(LIBRARY) LIBAGENT_UPLOADER=$(CURDIR)/libagent-uploader \
	    PROGRAMS=$(CURDIR)/$(PRELOAD) $(RUN_SUITES) \
	    $(filter $(PRELOAD)/check_%,$^)

# check_storm for longer, alone, and with what it measures on the screen; STORM_UNWINDER=libunwind: by
# that one alone.
STORM_SECONDS := 120
storm: all $(PRELOAD)/check_storm $(PROGRAMS)
	LIBAGENT_SO=$(CURDIR)/$(LIBRARY) PROGRAMS=$(CURDIR)/$(PRELOAD) \
	    STORM_SECONDS=$(STORM_SECONDS) $(if $(STORM_UNWINDER),STORM_UNWINDER=$(STORM_UNWINDER)) \
	    $(PRELOAD)/check_storm

# check_heap_programs with heaps of up to 500 MB, and with more programs.
.PHONY: heap-programs
heap-programs: all $(PRELOAD)/check_heap_programs $(PROGRAMS)
	LIBAGENT_SO=$(CURDIR)/$(LIBRARY) PROGRAMS=$(CURDIR)/$(PRELOAD) \
	    HEAP_PROGRAMS_LONG=1 $(PRELOAD)/check_heap_programs

# check_heap_churn with 500 million pairs and a minute's race.
.PHONY: heap-soak
heap-soak: all $(PRELOAD)/check_heap_churn $(PROGRAMS)
	LIBAGENT_SO=$(CURDIR)/$(LIBRARY) PROGRAMS=$(CURDIR)/$(PRELOAD) \
	    HEAP_SOAK=1 $(PRELOAD)/check_heap_churn

# check_wall_waits for a minute each way.
WAITS_SECONDS := 60
waits: all $(PRELOAD)/check_wall_waits $(PROGRAMS)
	LIBAGENT_SO=$(CURDIR)/$(LIBRARY) PROGRAMS=$(CURDIR)/$(PRELOAD) \
	    WALL_WAITS_SECONDS=$(WAITS_SECONDS) $(PRELOAD)/check_wall_waits

# check_api's second starts, with 5 s before them, 5 s off and 1 s on.
.PHONY: restarts
restarts: all $(PRELOAD)/check_api $(PROGRAMS)
	LIBAGENT_SO=$(CURDIR)/$(LIBRARY) PROGRAMS=$(CURDIR)/$(PRELOAD) \
	    RESTART_LONG=1 CK_RUN_CASE=restarts $(PRELOAD)/check_api

$(PRELOAD)/check_%: $(TEST)/test/preload/check_%.o $(TEST)/helpers.a
	mkdir -p $(@D); $(call say,LINK)
	$(CC) -o $@ $^ $(CHECK_LIBS)

$(PRELOAD)/prog_musl_%: test/preload/prog_musl_%.c Makefile
	$(call build_program,musl-gcc)

$(PRELOAD)/prog_gcc_%: test/preload/prog_gcc_%.c Makefile
	$(call build_program,$(CROSS)gcc)

$(PRELOAD)/prog_clang_%: test/preload/prog_clang_%.c Makefile
	$(call build_program,clang)

$(PRELOAD)/prog_%: test/preload/prog_%.c Makefile
	$(call build_program,$(CC))

$(PRELOAD)/prog_%: test/preload/prog_%.cc Makefile
	$(call build_program,$(CXX))

# ---- The walk beside libunwind, at every instruction and at random moments: test/unwind --------

UNWIND := build/$(VARIANT)/unwind
UNWIND_SOURCES := $(filter-out test/unwind/prog_%,$(wildcard test/unwind/*.c))
UNWIND_PROGRAMS := $(patsubst test/%,build/$(VARIANT)/%, \
    $(basename $(wildcard test/unwind/prog_*.c test/unwind/prog_*.cc)))

$(UNWIND)/prog_%: test/unwind/prog_%.c Makefile
	$(call build_program,$(CC))

$(UNWIND)/prog_%: test/unwind/prog_%.cc Makefile
	$(call build_program,$(CXX))

$(UNWIND)/unwind_differential: $(patsubst %.c,$(TEST)/%.o,$(UNWIND_SOURCES)) $(TEST)/helpers.a \
    $(TEST)/agent.a
	mkdir -p $(@D); $(call say,LINK)
	$(CC) -o $@ $(LINKED) $(CHECK_LIBS) -lunwind-x86_64

# FORM=short: what `make test` runs.
test-unwind: $(UNWIND)/unwind_differential $(UNWIND_PROGRAMS) $(PROGRAMS)
	sh test/unwind/differential.sh $(or $(FORM),full) build/$(VARIANT) $(WHAT)

test-unwind-deps:
	sh test/deps.sh unwind

# ---- Backends, as other people's receivers have them: test/backends --------------------------
# make test-backends-deps installs node, npm and nginx; what npm brings comes into build/backends.

BACKENDS := build/backends
RUN_BACKENDS = BACKENDS=$(CURDIR)/$(BACKENDS) LIBAGENT_SO=$(CURDIR)/$(LIBRARY) \
    LIBAGENT_UPLOADER=$(CURDIR)/libagent-uploader PROGRAMS=$(CURDIR)/$(PRELOAD) \
    PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3
BACKENDS_NEED := all uploader $(BACKENDS)/node_modules/.package-lock.json $(BACKENDS)/services.bin \
    $(PRELOAD)/prog_recursion $(PRELOAD)/prog_many_stacks
# Of the soak: as long as it takes to be sure, and enough to see that it works.
SOAK_SECONDS := 600

.PHONY: test-backends test-backends-deps soak-backends
test-backends: $(BACKENDS_NEED)
	$(RUN_BACKENDS) test/backends/test_backends.py $(WHAT)
	$(RUN_BACKENDS) test/backends/soak.py 40

soak-backends: $(BACKENDS_NEED)
	$(RUN_BACKENDS) test/backends/soak.py $(SOAK_SECONDS)

test-backends-deps:
	sh test/deps.sh backends

# What npm brings: the packages that the first file names, of the versions that the second one does.
define npm_packages
mkdir -p $(1)
cp $< $(1)/package.json
cp $(word 2,$^) $(1)/package-lock.json
cd $(1) && npm ci --ignore-scripts --no-audit --no-fund --omit=dev
touch $@
endef

$(BACKENDS)/node_modules/.package-lock.json: test/backends/package.json test/backends/package-lock.json
	$(call npm_packages,$(BACKENDS))

$(BACKENDS)/services.bin: $(wildcard test/backends/*.proto) test/preload/backends.proto test/profile.proto
	mkdir -p $(BACKENDS)
	protoc --include_imports --descriptor_set_out=$@ -Itest/backends -Itest/preload -Itest \
	    $(notdir $^)

# ---- Names beside those of llvm-symbolizer and pprof: test/names -------------------------------
# make test-names-deps installs what it uses.

.PHONY: test-names test-names-deps
test-names: all build/$(VARIANT)/names/names_of
	PYTHONDONTWRITEBYTECODE=1 python3 test/names/corpus.py build/$(VARIANT)/names/names_of build/names
	PYTHONDONTWRITEBYTECODE=1 python3 test/names/lines.py build/$(VARIANT)/names/names_of build/names
	PYTHONDONTWRITEBYTECODE=1 python3 test/names/pprof.py $(LIBRARY) build/names
	PYTHONDONTWRITEBYTECODE=1 python3 test/names/made.py $(LIBRARY) build/names

test-names-deps:
	sh test/deps.sh names
	GOBIN=$(CURDIR)/build/names GOFLAGS=-modcacherw go install \
	    github.com/google/pprof@v0.0.0-20240727154555-813a5fbdbec8

build/$(VARIANT)/names/names_of: $(TEST)/test/names/names_of.o $(TEST)/helpers.a $(TEST)/agent.a
	mkdir -p $(@D); $(call say,LINK)
	$(CC) $(SANITIZE) -o $@ $(LINKED) $(CHECK_LIBS)

BENCH_PROGRAMS := $(addprefix $(BENCH)/,bench_calls bench_latency bench_memory bench_samples bench_single)

# Everything that is compiled, for lint.
objects: $(PRODUCT)/libagent.so $(SUITE_PROGRAMS) $(PRELOAD_SUITES) $(PROGRAMS) \
    $(patsubst $(TEST)/%,$(TEST)/test/fuzz/%.o,$(FUZZ_TARGETS)) \
    $(UNWIND)/unwind_differential $(UNWIND_PROGRAMS) $(BENCH_PROGRAMS) $(BENCH)/bench_unwind $(BENCH)/bench_heap $(BENCH)/bench_names $(BENCH)/floor_shim.so $(BENCH)/in_place.so

# ---- The page of html profiles, and speedscope with collapsed ones, in headless Chromium: test/browser
# make browser-deps installs it: it is too large for what make deps brings. npm brings speedscope into
# build/browser.

.PHONY: test-browser browser-deps picture
RUN_BROWSER = cd test/browser && LIBAGENT_SO=$(CURDIR)/$(LIBRARY) PROGRAMS=$(CURDIR)/$(PRELOAD) \
    PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3

SPEEDSCOPE := build/browser/node_modules/.package-lock.json

$(SPEEDSCOPE): test/browser/speedscope.json test/browser/speedscope_lock.json
	$(call npm_packages,build/browser)

test-browser: all $(GEN)/page_head.html $(SPEEDSCOPE) $(addprefix $(PRELOAD)/prog_,shares labels lines heap_growth)
	$(RUN_BROWSER) -m unittest $(or $(WHAT),discover)

# The README's.
picture: all
	$(RUN_BROWSER) picture.py redis.png

browser-deps:
	sh test/deps.sh browser

# ---- Everything else is a script ---------------------------------------------------------------

deps:
	sh test/deps.sh

lint: all
	MAKE='$(MAKE)' C_FLAGS='$(LANGUAGE)' sh test/lint/run.sh

demo: deps
	$(MAKE) all
	sh test/demo.sh

bench: all $(BENCH_PROGRAMS) $(BENCH)/bench_unwind $(BENCH)/bench_heap $(BENCH)/floor_shim.so $(BENCH)/in_place.so
	PYTHONDONTWRITEBYTECODE=1 python3 test/bench/run.py $(BENCH) libagent.so $(WHAT)

bench-deps:
	sh test/deps.sh bench

deps-aarch64:
	sh test/deps.sh aarch64

$(BENCH)/%.so: test/bench/%.c Makefile
	mkdir -p $(@D); $(call say,LINK)
	$(CC) $(COMMON) -fno-builtin -fPIC -shared -Wl,-z,now -o $@ $< -ldl

$(BENCH)/%: test/bench/%.c Makefile
	mkdir -p $(@D); $(call say,LINK)
	$(CC) $(COMMON) -fomit-frame-pointer -o $@ $< -lpthread

$(BENCH)/%: test/bench/%.cc Makefile
	$(call build_program,$(CXX))

# The unwinder beside libunwind, the live heap's tables; the agent's objects are the product's.
UNWIND_PARTS := $(patsubst %.c,$(PRODUCT)/%.o,$(filter-out shim/%,$(SOURCES))) $(TEST)/helpers.a \
    $(THIRD_PARTY) Makefile

$(BENCH)/bench_unwind $(BENCH)/bench_heap: $(BENCH)/%: test/bench/%.c $(UNWIND_PARTS)
	mkdir -p $(@D); $(call say,LINK)
	$(CC) $(COMMON) -o $@ $(filter %.c %.o %.a,$^) $(CHECK_LIBS)

.PHONY: bench-names
bench-names: $(BENCH)/bench_names
	$<

$(BENCH)/bench_names: test/bench/bench_names.c $(UNWIND_PARTS)
	mkdir -p $(@D); $(call say,LINK)
	$(CC) $(COMMON) -o $@ $(filter %.c %.o %.a,$^) $(CHECK_LIBS)

$(BENCH)/in_place.so: test/bench/in_place.c $(UNWIND_PARTS)
	mkdir -p $(@D); $(call say,LINK)
	$(CC) $(COMMON) -fPIC -shared -o $@ $(filter %.c %.o %.a,$^) $(CHECK_LIBS)

# Each line alone, so that the first thing that fails is the last thing read.
test: deps
	$(MAKE) all
	$(MAKE) check
	$(MAKE) -j2 --output-sync=target check-address,undefined check-thread
	$(MAKE) -j2 --output-sync=target lint check-preload
	$(MAKE) test-unwind FORM=short

# The module suites and the programs whose truth is known, for aarch64 under an emulator.
test-aarch64: deps-aarch64
	$(MAKE) ARCH=aarch64 all
	python3 test/lint/binary.py build/aarch64/libagent.so
	$(MAKE) ARCH=aarch64 check
	$(MAKE) ARCH=aarch64 check-preload SUITES="check_truth_cpu check_truth_alloc check_stacks"

-include $(wildcard build/*/*/*.d build/*/*/*/*.d build/*/*/*/*/*.d)
