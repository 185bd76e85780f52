/* What generate.py reads, preprocessed: all behind the mark is of weft's header, because the system's headers come before it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
weft_declarations_begin
#include <weft/weft.h>
