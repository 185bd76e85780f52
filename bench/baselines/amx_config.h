/* For llama.cpp on processors with AMX, compiled by gcc 12: its _tile_loadconfig names only 8 of the 64 bytes that the instruction reads,
 * so that stores of the others are left out, and llama.cpp ends with a fault at the first prompt. */
#include <immintrin.h>
#define _tile_loadconfig(p) __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])(p)) : "memory")
