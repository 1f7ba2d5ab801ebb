/* Demangled names against known ones, against c++filt on the names of real libraries, and what
 * must stay as it is: hostile names, no memory. */
#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "agent/base/rng.h"
#include "agent/base/sys.h"
#include "agent/export/demangle.h"
#include "agent/export/demangle_heap.h"
#include "test/temp_folder.h"

static struct demangler demangler;
static char out[DEMANGLE_TEXT_MAX + 1];

static void setup(void)
{
    demangle_start(&demangler, DEMANGLE_TEXT_MAX);
    ck_assert_ptr_nonnull(demangler.memory);
}

static void teardown(void)
{
    demangle_stop(&demangler);
    ck_assert_ptr_null(demangler.memory);
}

/* As c++filt -i prints them, but for ".llvm.NUMBER". */
static const struct {
    const char *name, *readable;
} known[] = {
    {"_Z3fooi", "foo(int)"},
    {"_ZN3foo3barEv", "foo::bar()"},
    {"_ZNSt6vectorIiSaIiEE9push_backEOi",
     "std::vector<int, std::allocator<int> >::push_back(int&&)"},
    {"_ZNKSs4sizeEv", "std::string::size() const"},
    {"_ZZN1a1bEvENKUlT_E_clIiEEDaS0_",
     "auto a::b()::{lambda(auto:1)#1}::operator()<int>(int) const"},
    {"_ZTV3foo", "vtable for foo"},
    {"_ZThn16_N1D1fEv", "non-virtual thunk to D::f()"},
    {"_ZSt4moveIRiEONSt16remove_referenceIT_E4typeEOS2_",
     "std::remove_reference<int&>::type&& std::move<int&>(int&)"},
    {"_ZN1AcvbEv", "A::operator bool()"},
    {"_Z1fIJidEEvDpT_", "void f<int, double>(int, double)"},
    {"_GLOBAL__I_foo", "global constructors keyed to foo"},
    {"_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"},
    {"_ZN3foo3barEv.constprop.0", "foo::bar() [clone .constprop.0]"},
    {"_ZN3foo3barEv.llvm.1234567890123", "foo::bar()"},
    {"_ZN3foo3barEv.llvm.123.cold", "foo::bar() [clone .cold]"},
    {"_ZN12_GLOBAL__N_13fooEv", "(anonymous namespace)::foo()"},
    {"_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE", "core::fmt::Formatter::write_str"},
    {"_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE.llvm.77",
     "core::fmt::Formatter::write_str"},
    {"_ZN5alloc7raw_vec19RawVec$LT$T$C$A$GT$7reserve17h0123456789abcdefE",
     "alloc::raw_vec::RawVec<T,A>::reserve"},
    {"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
    {"_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"},
    {"_RNvMs_NtC5crate3modNtB4_4Type6method", "<crate::mod::Type>::method"},
    {"_RNCNvC1a4main0", "a::main::{closure#0}"},
    {"_RINvC1a1bhjE", "a::b::<u8, usize>"},
    {"_RNvC6_123foo3bar", "123foo::bar"},
    {"_RNvC1a8u8gdel_5qa", NULL}, /* 8u...: not how it is written */
    {"_RNvC1au8gdel_5qa", "a::g\xc3\xb6"
                          "del"},
    {"_RNvXs_C1aNtB4_1SNtC1b1T1m", "<a::S as b::T>::m"},
    {"_RINvC1a1bFG_RL0_eEuE", "a::b::<for<'a> fn(&'a str)>"},
    /* "FG" and digits in a crate's number, which nobody prints */
    {"_RNvCs1FGabcd_7mycrate3foo", "mycrate::foo"},
    {"_RNvC1a1b.llvm.42", "a::b"},
    {"_ZN3foo3barEv@plt", "foo::bar()@plt"},
    {"_RNvC1a1b@plt", "a::b@plt"},
    {"_ZN3foo3barEv@pl", NULL},
    /* Not mangled */
    {"main", NULL},
    {"", NULL},
    {"_", NULL},
    {"_Z", NULL},
    {"_R", NULL},
    {"_Zebra", NULL},
    {"_Read", NULL},
    {"Z3fooi", NULL},
    {"_ZN3foo3bar", NULL},
    {"_Z3foo\xff\x01", NULL},
};

START_TEST(known_names)
{
    const char *name = known[_i].name, *readable = known[_i].readable;
    size_t length = demangle(&demangler, name, out);
    if (!readable) {
        ck_assert_msg(length == 0, "%s became %s", name, out);
        return;
    }
    ck_assert_msg(length > 0, "%s is not read", name);
    ck_assert_str_eq(out, readable);
    ck_assert_uint_eq(length, strlen(readable));
}
END_TEST

/* Lines of a command, each given to `each`. */
static int each_line(const char *command, void (*each)(char *line))
{
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    char *line = NULL;
    size_t size = 0;
    int count = 0;
    for (ssize_t length; (length = getline(&line, &size, pipe)) > 0; count++) {
        line[length - 1] = 0;
        each(line);
    }
    free(line);
    ck_assert_int_eq(pclose(pipe), 0);
    return count;
}

/* "MANGLED READABLE". */
static void check_against_cxxfilt(char *line)
{
    char *readable = strchr(line, ' ');
    ck_assert_ptr_nonnull(readable);
    *readable++ = 0;
    size_t length = demangle(&demangler, line, out);
    if (length == 0) {
        ck_assert_str_eq(readable, line);
    } else if (strlen(readable) > DEMANGLE_TEXT_MAX) { /* name_limit.h */
        ck_assert_uint_le(length, DEMANGLE_TEXT_MAX);
        ck_assert_ptr_nonnull(strstr(out, "..."));
    } else {
        ck_assert_str_eq(out, readable);
    }
}

START_TEST(names_of_real_libraries)
{
    const char *folder = temp_folder_make();
    char command[1024];
    snprintf(command, sizeof(command),
             "cd %s && for l in $(/sbin/ldconfig -p | sed -n 's,.*=> \\(.*/lib\\(stdc++\\|protoc\\|"
             "icuuc\\)\\.so.*\\),\\1,p'); do nm -D --defined-only $l; done | "
             "sed -n 's,.* [A-Za-z] \\(_Z[^@]*\\).*,\\1,p' | sort -u > mangled; "
             "c++filt -i < mangled > readable; paste -d ' ' mangled readable",
             folder);
    ck_assert_int_gt(each_line(command, check_against_cxxfilt), 4000);
    temp_folder_remove(folder);
}
END_TEST

static char *repeat(char *at, const char *text, int times)
{
    for (; times > 0; times--)
        at = stpcpy(at, text);
    return at;
}

START_TEST(the_longest_input)
{
    char name[DEMANGLE_RUST_INPUT_MAX + 100];
    for (int pointers = DEMANGLE_CXX_INPUT_MAX - 10; pointers < DEMANGLE_CXX_INPUT_MAX + 10;
         pointers++) {
        stpcpy(repeat(stpcpy(name, "_Z1f"), "P", pointers), "i");
        size_t length = demangle(&demangler, name, out);
        if (strlen(name) <= DEMANGLE_CXX_INPUT_MAX)
            ck_assert_uint_gt(length, 0);
        else
            ck_assert_uint_eq(length, 0);
    }
    stpcpy(repeat(stpcpy(name, "_RINvC1a1b"), "h", DEMANGLE_RUST_INPUT_MAX - 11), "E");
    ck_assert_uint_eq(strlen(name), DEMANGLE_RUST_INPUT_MAX);
    ck_assert_uint_gt(demangle(&demangler, name, out), 0);
    stpcpy(repeat(stpcpy(name, "_RINvC1a1b"), "h", DEMANGLE_RUST_INPUT_MAX - 10), "E");
    ck_assert_uint_eq(demangle(&demangler, name, out), 0);
    /* What is left out counts nowhere but there. */
    strcpy(repeat(stpcpy(name, "_Z1f"), "P", 10), "i.llvm.123456789");
    ck_assert_uint_gt(demangle(&demangler, name, out), 0);
}
END_TEST

START_TEST(of_long_output_dots_stand_for_what_is_in_brackets)
{
    char name[DEMANGLE_CXX_INPUT_MAX];
    for (int count = 190; count < 215; count++) {
        repeat(stpcpy(name, "_Z1f"), "i", count);
        size_t whole = strlen("f()") + (size_t)count * 5 - 2;
        size_t length = demangle(&demangler, name, out);
        ck_assert_uint_eq(length, strlen(out));
        if (whole <= DEMANGLE_TEXT_MAX) {
            ck_assert_uint_eq(length, whole);
            ck_assert_str_eq(out + length - 4, "int)");
        } else {
            ck_assert_str_eq(out, "f(...)");
        }
    }
}
END_TEST

START_TEST(output_is_not_cut_through_a_character)
{
    /* a::g\u00f6del::g\u00f6del...: 8 bytes each, the last one cut at a different byte each time */
    char name[2048];
    for (int extra = 1; extra <= 8; extra++) {
        char crate[32];
        snprintf(crate, sizeof(crate), "C%d%.*s", extra, extra, "abcdefgh");
        repeat(stpcpy(repeat(stpcpy(name, "_R"), "Nt", 140), crate), "u8gdel_5qa", 140);
        size_t length = demangle(&demangler, name, out);
        ck_assert_uint_le(length, DEMANGLE_TEXT_MAX);
        ck_assert_uint_ge(length, DEMANGLE_TEXT_MAX - 1);
        ck_assert_str_eq(out + length - 3, "...");
        unsigned char last = (unsigned char)out[length - 4];
        ck_assert_msg(last < 0xc0, "cut behind the first byte of a character");
        /* The character before is whole. */
        if (last >= 0x80)
            ck_assert_uint_eq((unsigned char)out[length - 5], 0xc3);
    }
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const char *substitution(char *text, int number)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (number == 0)
        return "S_";
    number--;
    if (number < 36)
        sprintf(text, "S%c_", digits[number]);
    else
        sprintf(text, "S%c%c_", digits[number / 36], digits[number % 36]);
    return text;
}

/* A<A<...>, A<...>>: its text doubles with each level, the name grows by some bytes. */
static char *doubling(char *at, int first, int levels)
{
    at = stpcpy(at, "1AIiiE");
    for (int i = 0; i < levels; i++) {
        char previous[8], template[8];
        const char *p = substitution(previous, first + 1 + i);
        at += sprintf(at, "%sI%s%sE", substitution(template, first), p, p);
    }
    return at;
}

/* Names that libiberty by itself would work on for ages. */
START_TEST(hostile_names_end_soon)
{
    char name[4096];
    double start = cpu_seconds();
    /* Text without end */
    *doubling(stpcpy(name, "_Z1f"), 0, 60) = 0;
    ck_assert_uint_eq(demangle(&demangler, name, out), 0);
    /* A pack that is looked for down all ways, without text */
    strcpy(doubling(stpcpy(name, "_Z1fDp1BI"), 1, 40), "E");
    ck_assert_uint_eq(demangle(&demangler, name, out), 0);
    strcpy(doubling(stpcpy(name, "_Z1fIXsZ1BI"), 1, 40), "EEEvv");
    ck_assert_uint_eq(demangle(&demangler, name, out), 0);
    /* Conversions, each parsed twice */
    strcpy(repeat(strcpy(repeat(stpcpy(name, "_ZN1Acv"), "T_I", 200), "i") + 1, "E", 200), "Ev");
    ck_assert_uint_eq(demangle(&demangler, name, out), 0);
    /* 62^6 lifetimes, where nothing is printed; also hidden behind what looks like a crate */
    ck_assert_uint_eq(demangle(&demangler, "_RNvMINvC1a1bFGzzzzzz_EuEu1d", out), 0);
    ck_assert_uint_eq(demangle(&demangler, "_RNvMINvC1a1bDGzzzzzz_EL_Eu1d", out), 0);
    demangle(&demangler, "_RNvMINvC2Cs1bFGzzzzzz_EuEu1d", out);
    /* ... and where it is printed */
    ck_assert_uint_eq(demangle(&demangler, "_RINvCs_1a1bFGzz_EuFGzz_EuFGzz_EuFGzz_EuE", out), 0);
    /* Deep */
    strcpy(repeat(stpcpy(repeat(stpcpy(name, "_RINvC1a1b"), "T", 1900), "u"), "E", 1901), "");
    demangle(&demangler, name, out);
    repeat(stpcpy(name, "_Z1f"), "PF", 510);
    demangle(&demangler, name, out);
    strcpy(repeat(stpcpy(name, "_Z1aIiEv"), "RT_", 338), "");
    ck_assert_uint_gt(demangle(&demangler, name, out), 0);
    ck_assert_double_lt(cpu_seconds() - start, 2.0); /* 10 ms; far more under sanitizers */
}
END_TEST

static void mutate(struct rng *rng, char *name, size_t size)
{
    static const char letters[] = "SRTIE_GFDpcvsZPKXLNJ0123456789";
    for (int changes = 1 + (int)(rng_next(rng) % 6); changes > 0; changes--) {
        size_t length = strlen(name);
        if (length < 4)
            return;
        size_t at = 2 + rng_next(rng) % (length - 2);
        size_t part = 1 + rng_next(rng) % MIN_OF(length - at, (size_t)30);
        switch (rng_next(rng) % 4) {
        case 0:
            name[at] = letters[rng_next(rng) % (sizeof(letters) - 1)];
            break;
        case 1:
            name[at] = (char)(1 + rng_next(rng) % 255);
            break;
        case 2: /* twice */
            if (length + part < size) {
                memmove(name + at + part, name + at, length - at + 1);
            }
            break;
        default: /* left out */
            memmove(name + at, name + at + part, length - at - part + 1);
        }
    }
}

START_TEST(damaged_names)
{
    struct rng rng = {.state = 42};
    int readable = 0;
    for (int i = 0; i < 100000; i++) {
        char name[256];
        strcpy(name, known[rng_next(&rng) % ARRAY_SIZE(known)].name);
        mutate(&rng, name, sizeof(name));
        size_t length = demangle(&demangler, name, out);
        ck_assert_uint_le(length, DEMANGLE_TEXT_MAX);
        if (length) {
            ck_assert_uint_eq(length, strlen(out));
            readable++;
        }
    }
    ck_assert_int_gt(readable, 1000); /* the mutations are not all too wild */
}
END_TEST

static void *demangle_deep(void *name)
{
    return (void *)demangle(&demangler, name, out);
}

/* libiberty takes some 400 KiB for this name: it must not be those of the caller. */
START_TEST(the_stack_of_the_caller_is_spared)
{
    char name[DEMANGLE_CXX_INPUT_MAX + 1];
    repeat(stpcpy(name, "_Z1aIiEv"), "RT_", 338);
    pthread_attr_t attributes;
    pthread_t thread;
    void *length;
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&attributes, 128 << 10), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, demangle_deep, name), 0);
    ck_assert_int_eq(pthread_join(thread, &length), 0);
    ck_assert_ptr_nonnull(length);
    pthread_attr_destroy(&attributes);
}
END_TEST

START_TEST(without_memory_names_stay)
{
    struct demangler none;
    fault_set(SYS_mmap, 0, 1, -ENOMEM);
    demangle_start(&none, DEMANGLE_TEXT_MAX);
    ck_assert_int_eq(fault_clear(), 1);
    ck_assert_ptr_null(none.memory);
    ck_assert_uint_eq(demangle(&none, "_Z3fooi", out), 0);
    demangle_stop(&none);
    fault_set(SYS_mprotect, 0, 1, -ENOMEM);
    demangle_start(&none, DEMANGLE_TEXT_MAX);
    ck_assert_int_eq(fault_clear(), 1);
    ck_assert_ptr_null(none.memory);
}
END_TEST

static int exhaustions;

static void count_exhaustion(void)
{
    exhaustions++;
}

START_TEST(the_heap)
{
    static uint8_t memory[1024] __attribute__((aligned(16)));
    demangle_heap_use(memory, sizeof(memory), count_exhaustion);
    char *a = demangle_malloc(1), *b = demangle_malloc(17), *c = demangle_malloc(0);
    ck_assert_uint_eq((uintptr_t)a % 16 + (uintptr_t)b % 16 + (uintptr_t)c % 16, 0);
    ck_assert(b >= a + 1);
    ck_assert(c >= b + 17);
    memset(b, 'b', 17);
    *a = 'a';
    char *larger = demangle_realloc(b, 100), *smaller = demangle_realloc(larger, 5);
    for (int i = 0; i < 17; i++)
        ck_assert_int_eq(larger[i], 'b');
    ck_assert_mem_eq(smaller, "bbbbb", 5);
    ck_assert_int_eq(*a, 'a');
    char *fresh = demangle_realloc(NULL, 8);
    ck_assert_ptr_nonnull(fresh);
    demangle_free(fresh);
    demangle_free(NULL);
    ck_assert_int_eq(exhaustions, 0);
    ck_assert_ptr_null(demangle_malloc(SIZE_MAX));
    ck_assert_ptr_null(demangle_malloc(SIZE_MAX - 20));
    ck_assert_ptr_null(demangle_realloc(larger, 1000));
    ck_assert_int_eq(exhaustions, 3);
    /* To the last byte, never behind it */
    for (uint8_t *block; (block = demangle_malloc(1));) {
        ck_assert(block >= memory);
        ck_assert(block < memory + sizeof(memory));
    }
    ck_assert_int_eq(exhaustions, 4);
    demangle_heap_use(memory, sizeof(memory), NULL);
    ck_assert_ptr_nonnull(demangle_malloc(sizeof(memory) - 16));
    ck_assert_ptr_null(demangle_malloc(0));
}
END_TEST

START_TEST(checked_printf)
{
    char text[16];
    ck_assert_int_eq(demangle_sprintf_chk(text, 1, sizeof(text), "%d", -42), 3);
    ck_assert_str_eq(text, "-42");
    ck_assert_int_eq(
        demangle_sprintf_chk(text, 1, SIZE_MAX, "%lu", 18446744073709551615ul % 100000), 5);
    ck_assert_str_eq(text, "51615");
    ck_assert_int_eq(demangle_snprintf_chk(text, 8, 1, sizeof(text), "%lx", 0xabcdef12345ul), 7);
    ck_assert_str_eq(text, "abcdef1");
    ck_assert_int_eq(demangle_snprintf_chk(text, 100, 1, 4, "%lx", 0xabcdef12345ul), 3);
    ck_assert_str_eq(text, "abc");
}
END_TEST

Suite *suite(void)
{
    Suite *suite = suite_create("demangle");
    TCase *names = tcase_create("names");
    tcase_add_checked_fixture(names, setup, teardown);
    tcase_add_loop_test(names, known_names, 0, ARRAY_SIZE(known));
    tcase_add_test(names, names_of_real_libraries);
    tcase_add_test(names, the_longest_input);
    tcase_add_test(names, of_long_output_dots_stand_for_what_is_in_brackets);
    tcase_add_test(names, output_is_not_cut_through_a_character);
    tcase_add_test(names, hostile_names_end_soon);
    tcase_add_test(names, damaged_names);
    tcase_add_test(names, the_stack_of_the_caller_is_spared);
    tcase_set_timeout(names, 60);
    suite_add_tcase(suite, names);
    TCase *memory = tcase_create("memory");
    tcase_add_test(memory, without_memory_names_stay);
    tcase_add_test(memory, the_heap);
    tcase_add_test(memory, checked_printf);
    suite_add_tcase(suite, memory);
    return suite;
}
