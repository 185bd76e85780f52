/* dict: mappings in the order of insertion, with a hash table beside the entries. */
#include "jinja/internal.h"

/* Equal keys have equal hashes: 1, 1.0 and true are one key. */
static uint64_t hash_of(wf_jrun *r, wf_jvalue k)
{
    wf_jstep(r, k.kind == WF_JSTRING ? k.s->len / 64 : 0);
    if (k.kind == WF_JSTRING) return wf_hash(k.s->p, k.s->len);
    if (wf_jis_number(k)) {
        double f = wf_jreal(k) + 0.0; /* no -0 */
        return wf_hash(&f, sizeof f);
    }
    if (k.kind == WF_JNONE) return 1;
    if (k.kind != WF_JTUPLE) wf_jfail(r, WEFT_ERR_ARG, "%s cannot be a key", wf_jtype(k));
    uint64_t h = 2;
    wf_jenter(r);
    for (size_t i = 0; i < k.l->n; i++) h = h * 1000003 + hash_of(r, k.l->v[i]);
    wf_jleave(r);
    return h;
}

static uint32_t *slot_of(wf_jrun *r, const wf_jdict *d, wf_jvalue key)
{
    size_t at = hash_of(r, key) & (d->n_slots - 1);
    while (d->slots[at] && !wf_jequal(r, d->e[d->slots[at] - 1].key, key)) at = (at + 1) & (d->n_slots - 1);
    return &d->slots[at];
}

wf_jvalue wf_jdict_new(wf_jrun *r) { return WF_JVALUE(WF_JDICT, d, wf_jalloc(r, 1, sizeof(wf_jdict))); }

const wf_jvalue *wf_jdict_get(wf_jrun *r, const wf_jdict *d, wf_jvalue key)
{
    if (key.kind == WF_JUNDEFINED) return NULL;
    if (!d->n) return hash_of(r, key), NULL;
    uint32_t slot = *slot_of(r, d, key);
    return slot ? &d->e[slot - 1].value : NULL;
}

const wf_jvalue *wf_jdict_find(wf_jrun *r, const wf_jdict *d, wf_jstr key)
{
    return wf_jdict_get(r, d, (wf_jvalue){.kind = WF_JSTRING, .s = &key});
}

void wf_jdict_set(wf_jrun *r, wf_jdict *d, wf_jvalue key, wf_jvalue value)
{
    wf_jneed(r, key);
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        wf_jentry *e = wf_jalloc(r, cap, sizeof *e);
        if (d->n) memcpy(e, d->e, d->n * sizeof *e);
        d->e = e, d->cap = cap, d->n_slots = cap * 2;
        d->slots = wf_jalloc(r, d->n_slots, sizeof *d->slots);
        for (size_t i = 0; i < d->n; i++) *slot_of(r, d, e[i].key) = (uint32_t)i + 1;
    }
    uint32_t *slot = slot_of(r, d, key);
    if (*slot) {
        d->e[*slot - 1].value = value;
        return;
    }
    d->e[d->n++] = (wf_jentry){key, value};
    *slot = (uint32_t)d->n;
}
