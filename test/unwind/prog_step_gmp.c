/* CFLAGS: -O2 */
/* LIBS: -Wl,-z,now -l:libgmp.so.10 */
/* libgmp's assembly, much of which has no call frame information. The library comes with gcc; its
 * header is not needed for these. */
#include <stddef.h>

typedef struct {
    int room, size;
    unsigned long *limbs;
} number[1];

void __gmpz_init(number x);
int __gmpz_set_str(number x, const char *text, int base);
void __gmpz_pow_ui(number x, const number a, unsigned long exponent);
void __gmpz_mul(number x, const number a, const number b);
void __gmpz_tdiv_qr(number q, number r, const number a, const number b);
void __gmpz_powm(number x, const number a, const number exponent, const number m);
void __gmpz_gcd(number x, const number a, const number b);
void __gmpz_mul_2exp(number x, const number a, unsigned long bits);
void __gmpz_add(number x, const number a, const number b);
void __gmpz_sub(number x, const number a, const number b);
char *__gmpz_get_str(char *text, int base, const number x);

static char text[20000];

int main(void)
{
    number a, b, c, d, e;
    __gmpz_init(a);
    __gmpz_init(b);
    __gmpz_init(c);
    __gmpz_init(d);
    __gmpz_init(e);
    __gmpz_set_str(a, "123456789012345678901234567890123456789012345678901", 10);
    __gmpz_set_str(b, "987654321098765432109876543210987654321", 10);
    for (unsigned long round = 1; round < 20; round++) {
        __gmpz_pow_ui(c, a, round * 3);
        __gmpz_pow_ui(d, b, round * 2);
        __gmpz_mul(e, c, d);
        __gmpz_add(e, e, a);
        __gmpz_tdiv_qr(c, d, e, c);
        __gmpz_mul_2exp(e, e, 13);
        __gmpz_sub(e, e, c);
        __gmpz_gcd(d, e, a);
        __gmpz_powm(d, a, b, c);
        __gmpz_get_str(text, 10, d);
    }
    return text[0] == 0;
}
