/* Profiles from text, for tests. */
#ifndef PROFILE_TEXT_H
#define PROFILE_TEXT_H

#include "plan/op_profile.h"

#include "support/suite.h"

static weft_status try_profile(const char *text, wf_op_profile *p)
{
    const char *path = file_of(text);
    weft_status s = wf_op_profile_load(path, p);
    unlink(path);
    return s;
}

static inline wf_op_profile profile_of(const char *text)
{
    wf_op_profile p;
    assert_ok(try_profile(text, &p));
    return p;
}

#endif
