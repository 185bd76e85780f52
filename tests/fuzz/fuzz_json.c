/* fuzz_json: any bytes as JSON, behind one that says by which rules. What is read by the strict rules is what the
 * walker takes for whole, and what is written of a tree reads as the same tree. */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x) ((x) ? (void)0 : abort())

static void check_same(const wf_json *a, const wf_json *b)
{
    if (a->kind == WF_JSON_REAL && !isfinite(a->real)) return; /* has become null */
    CHECK(a->kind == b->kind && a->n == b->n);
    if (a->kind == WF_JSON_BOOL) CHECK(a->b == b->b);
    else if (a->kind == WF_JSON_BIG) CHECK(!memcmp(a->text, b->text, a->n));
    else if (a->kind == WF_JSON_STRING)
        CHECK(!memcmp(a->text, b->text, a->n + 1) && wf_utf8_valid(a->text, a->n) == a->n);
    else if (wf_json_is_number(a)) CHECK(a->kind == WF_JSON_REAL ? a->real == b->real : a->u == b->u);
    else if (a->kind == WF_JSON_LIST)
        for (size_t i = 0; i < a->n; i++) check_same(&a->list[i], &b->list[i]);
    else if (a->kind == WF_JSON_OBJECT)
        for (size_t i = 0; i < a->n; i++) {
            const wf_json_member *m = &a->members[i];
            check_same(&m->name, &b->members[i].name);
            check_same(&m->value, &b->members[i].value);
            CHECK(wf_json_find(a, m->name.text, m->name.n) == &m->value);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    const char *text = (const char *)data + 1;
    wf_json_rules rules = {.flags = data[0] & (WF_JSON_UNIQUE | WF_JSON_LOOSE), .depth = data[0] & 64 ? 64 : 0,
                           .values = data[0] & 128 ? 20 : 0};
    wf_json_error e = {0};
    wf_json *root = wf_json_read(text, --size, &rules, &e);
    if (!root) {
        CHECK(e.line && e.column && e.column <= size + 1 && *e.text);
        return 0;
    }
    if (rules.depth && !(rules.flags & WF_JSON_LOOSE)) CHECK(wf_json_whole(text, size));
    wf_text t = {0};
    wf_json_put(&t, root);
    rules = (wf_json_rules){.flags = WF_JSON_UNIQUE | WF_JSON_LOOSE};
    wf_json *again = wf_json_read(t.data, t.len, &rules, &e);
    CHECK(again);
    check_same(root, again);
    free(t.data);
    wf_json_free(again);
    wf_json_free(root);
    return 0;
}
