/* embed: WF_EMBED(name, "path") in an assembler file embeds a file as read-only data between name and name_end,
 * followed by a zero byte. */
#ifndef WF_EMBED_H
#define WF_EMBED_H

/* clang-format off */
#define WF_EMBED(name, path)                                                                       \
    .section .rodata;                                                                              \
    .global name;                                                                                  \
    .hidden name;                                                                                  \
    .global name##_end;                                                                            \
    .hidden name##_end;                                                                            \
    .balign 4096;                                                                                  \
    name:;                                                                                         \
    .incbin path;                                                                                  \
    name##_end:;                                                                                   \
    .byte 0;                                                                                       \
    .section .note.GNU-stack,"",%progbits

#endif
