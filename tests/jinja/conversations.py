"""Conversations that the templates of the test data are rendered with: system, turns, tools and their calls, thinking on and off, images."""
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Current weather, in °C.\nOf one city.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "the city's name"},
            "days": {"type": "integer", "default": 1, "minimum": 0},
            "units": {"type": "string", "enum": ["metric", "imperial"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}}}},
            "required": ["city"]},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
]


def user(text):
    return {"role": "user", "content": text}


def answer(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(arguments, name="get_weather", text="", number="call12345", **more):
    return answer(text, tool_calls=[{"type": "function", "id": number, "function": {"name": name, "arguments": arguments}}], **more)


def result(text, number="call12345", name="get_weather"):
    return {"role": "tool", "content": text, "tool_call_id": number, "name": name}


SYSTEM = {"role": "system", "content": " Be brief. \n"}
PLAIN = [user("Hello \"you\"\n"), answer(" Hi <b>there</b> "), user("Größe 你好 🙂?")]
THOUGHT = [user("1+1?"), answer("<think>\nEasy: 2.\n</think>\n\n2"), user("And 2+2?")]
REASONED = [user("1+1?"), answer("2", reasoning_content="Easy: 2."), user("And 2+2?")]
CALLS = [user("Weather in Oslo?"), call({"city": "Oslo", "days": 2, "tags": ["a", "b"], "place": {"lat": 59.9, "lon": None}, "ok": True}),
         result('{"temperature": 3.5}')]
IMAGE = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image", "image": "cat.png"}]}]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "and two"}]}]

CONVERSATIONS = {
    "plain": (PLAIN, None, None, True),
    "no answer begins": (PLAIN, None, None, False),
    "system": ([SYSTEM, *PLAIN], None, None, True),
    "one turn": (PLAIN[:1], None, None, True),
    "ends with an answer": (PLAIN[:2], None, None, False),
    "empty": ([], None, None, True),
    "two users": ([user("a"), user("b")], None, None, True),
    "late system": ([*PLAIN, SYSTEM], None, None, True),
    "unknown role": ([{"role": "frob", "content": "x"}], None, None, True),
    "developer": ([{"role": "developer", "content": "Be brief."}, user("Hi")], None, None, True),
    "thinking on": (PLAIN, None, {"enable_thinking": True, "thinking": True}, True),
    "thinking off": (PLAIN, None, {"enable_thinking": False, "thinking": False}, True),
    "thought": (THOUGHT, None, {"enable_thinking": True}, True),
    "reasoned": (REASONED, None, None, True),
    "reasoning effort": ([SYSTEM, *PLAIN], None, {"reasoning_effort": "high", "builtin_tools": ["python"]}, True),
    "tools": ([SYSTEM, *PLAIN], TOOLS, None, True),
    "tools, no system": (PLAIN, TOOLS, None, True),
    "tools, thinking off": (PLAIN[:1], TOOLS, {"enable_thinking": False}, True),
    "calls": ([SYSTEM, *CALLS], TOOLS, None, True),
    "calls, no tools": (CALLS, None, None, True),
    "calls and answer": ([*CALLS, answer("3.5 °C"), user("Thanks")], TOOLS, None, True),
    "call with text": ([CALLS[0], call({"city": "Oslo"}, text="Let me look."), result("3")], TOOLS, None, True),
    "call without content": ([CALLS[0], {**call({"city": "Oslo"}), "content": None}, result("3")], TOOLS, None, True),
    "reasoned call": ([CALLS[0], call({"city": "Oslo"}, reasoning_content="I need data."), result("3")], TOOLS, None, True),
    "arguments as text": ([CALLS[0], call('{"city": "Oslo"}'), result("3")], TOOLS, None, True),
    "two results": ([CALLS[0], {**answer(""), "tool_calls": [*call({"city": "Oslo"})["tool_calls"], *call({}, "now", number="call67890")["tool_calls"]]},
                     result("3"), result("noon", "call67890", "now")], TOOLS, None, True),
    "parts": (PARTS, None, None, True),
    "image": (IMAGE, None, None, True),
    "old date": (PLAIN, TOOLS, {"date_string": "26 Jul 2024"}, True),
}
