/* channels: answers in OpenAI's harmony format, which are messages of several channels: a header, <|message|>, a body.
 * The channel analysis has thoughts, and a message to=functions.NAME is a call; all others are for the user. */
#ifndef WF_CHANNELS_H
#define WF_CHANNELS_H

#include "answers/tool_calls.h"

typedef struct wf_channels {
    bool thoughts, calls; /* are told apart; else they are text */
    enum { WF_HEADER, WF_BODY } state;
    enum { WF_TO_USER, WF_THOUGHT, WF_CALL_OF } sort;
    bool begun, said[2];  /* this message has a body; there were any to the user, any thoughts */
    char name[80];        /* of the function */
    size_t search;        /* no marker is before this */
    wf_text held;
} wf_channels;
/* c: begins as {thoughts, calls}; free c->held.data. false: no memory. */
bool wf_channels_feed(wf_channels *c, const char *text, size_t len, const wf_call_out *out);
void wf_channels_end(wf_channels *c, const wf_call_out *out);
/* The markers that are control tokens and do not end the answer: NULL behind the last one. */
extern const char *const wf_channel_markers[];

#endif
