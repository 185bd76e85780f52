/* The demo model as read-only data; DEMO_MODEL is its path, from meson.build. */
    .section .rodata
    .global wf_demo_model
    .hidden wf_demo_model
    .global wf_demo_model_end
    .hidden wf_demo_model_end
    .balign 4096
wf_demo_model:
    .incbin DEMO_MODEL
wf_demo_model_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
