/*
 * What lwIP leaves to whoever ports it, done as its own manual advises for speed: these functions
 * take the place of the library's, which Debian builds to run anywhere.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/inet_chksum.h"
#include "lwip/memp.h"
#include "lwip/priv/memp_priv.h"
#include "lwip/sys.h"

/* There is one thread: nothing to lock. */
sys_prot_t sys_arch_protect(void)
{
    return 0;
}

void sys_arch_unprotect(sys_prot_t before)
{
    (void)before;
}

void sys_check_core_locking(void)
{
}

/* A sum of words of 32 bits, which the compiler makes wide. The library's adds 16 bits at a time. */
u16_t lwip_standard_chksum(const void *begin, int length)
{
    const uint8_t *bytes = begin;
    uint64_t sum = 0;
    for (; length >= 4; length -= 4, bytes += 4) {
        uint32_t word;
        memcpy(&word, bytes, 4);
        sum += word;
    }
    if (length > 0) {
        uint32_t word = 0;
        memcpy(&word, bytes, (size_t)length);
        sum += word;
    }
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    return (u16_t)((sum & 0xffff) + (sum >> 16));
}

/* Pools that grow: what was given back is taken first. */
static void *unused[MEMP_MAX];

void *memp_malloc(memp_t type)
{
    void **piece = unused[type];
    if (piece == NULL)
        return malloc(memp_pools[type]->size);
    unused[type] = *piece;
    return piece;
}

void memp_free(memp_t type, void *piece)
{
    if (piece == NULL)
        return;
    *(void **)piece = unused[type];
    unused[type] = piece;
}
