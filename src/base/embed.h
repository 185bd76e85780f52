/* embed: a file as read-only data of the program, from an assembler file: WF_EMBED(name, "path") defines
 * name and name_end. A byte of 0 stands behind the data. */
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
