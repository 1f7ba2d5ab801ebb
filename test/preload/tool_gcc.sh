# gcc: a large file compiled and linked, one that does not compile.
# Told: warnings and errors, statuses, the hashes of the object and of what the library exports.
awk 'BEGIN {
    print "#include <stdio.h>\n#include <string.h>\nstruct s { int a[8]; double d; };"
    for (i = 0; i < 320; i++) {
        printf "int f%d(struct s *p, int n) { int r = %d;\n", i, i
        if (i % 100 == 0)
            print "int unused;"
        printf "for (int i = 0; i < n; i++) { r += p[i].a[i %% 8] * %d;\n", i * 31 % 97
        printf "if (r & %d) { p[i].d /= r; r ^= (int)p[i].d; }\n", i % 13 + 1
        printf "switch (r %% 7) { case 1: r += %d; break; case 4: memset(p, r, n); }}\n", i
        printf "return r + printf(\"%%d\", r); }\n"
    }
}' > big.c
gcc -Wall -O2 -fPIC -c big.c -o big.o
echo "status $?"
sha256sum big.o
gcc -shared -o big.so big.o && nm -D big.so | sort | sha256sum
echo 'int main(void) { return missing(; }' > bad.c
gcc -c bad.c
echo "status $?"
