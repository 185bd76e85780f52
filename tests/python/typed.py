"""Calls that a type checker lets pass, and calls that it must not: mypy --strict complains of an exemption that none needs. Nobody runs this."""
import weft

model = weft.Model(weft.DEMO, vocab_only=False)
engine = weft.Engine(model, device="cpu", n_seqs=4, no_prefix=True, stop=lambda: False, kv_memory=None)
engine.submit("x", max_tokens=3, temperature=0.5, stop=["a", b"b"], stop_ids=[1, 2], bias={3: -1.0}, logprobs=True)
engine.submit(tokens=[1, 2], stop="a")
engine.complete([1, 2], bias=[(3, 1)])
engine.chat([{"role": "user", "content": "a"}], chat_template="{{ messages }}", kwargs={"thinking": False}, max_tokens=3)
model.chat_render([], tools=[], no_generation_prompt=True)
model.budget(context=256)

engine.submit("x", max_tokens="a")  # type: ignore[arg-type]
engine.submit("x", nonsense=1)  # type: ignore[call-arg]
engine.generate("x", stop_ids=["a"])  # type: ignore[list-item]
engine.chat([], chat_template=3)  # type: ignore[arg-type]
engine.submit("x", chat_template="{{ messages }}")  # type: ignore[call-arg]
model.budget(context=1.5)  # type: ignore[arg-type]
weft.Engine(model, devise="cpu")  # type: ignore[call-arg]
weft.Engine("x")  # type: ignore[arg-type]
weft.Model("x", vocab_only="yes")  # type: ignore[arg-type]
