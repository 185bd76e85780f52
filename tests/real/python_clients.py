#!/usr/bin/env python3
"""Clients as Python programs use them, unchanged: what they ask a published model for comes as the classes and calls that their user wants.

    python_clients.py WEFT FOLDER             all of them. FOLDER has the model, and gets their packages once: those of python_clients_*.txt, as several want
                                              other versions of one. Without a network this is skipped
    python_clients.py --at URL KIND [NAME...] those of a list that is installed, or these, at a server that runs
"""
import asyncio
import enum
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import typing
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# They neither report what they do nor look for newer lists.
QUIET = {'LITELLM_LOCAL_MODEL_COST_MAP': 'True', 'HAYSTACK_TELEMETRY_ENABLED': 'False', 'CREWAI_DISABLE_TELEMETRY': 'true', 'OTEL_SDK_DISABLED': 'true'}
ASK = 'Write this JSON again: {"colour": "red", "ripe": true, "note": "sweet"}' # a model that knows what to write comes to an end
MOST = 600  # of tokens: a list of calls, at most 16, is none where it is cut
clients = {}


def client(kind):
    return lambda f: clients.setdefault(kind, []).append(f) or f


def classes():
    """What is asked for, once there is pydantic."""
    global Leaf, Fruit, Loose
    from pydantic import BaseModel, ConfigDict, Field

    class Colour(str, enum.Enum):
        RED = 'red'
        GREEN = 'green'

    class Leaf(BaseModel):
        green: bool

    class Fruit(BaseModel):
        """A fruit."""
        colour: Colour = Field(description='as it looks')
        ripe: bool
        note: str = Field(max_length=8)
        leaf: typing.Optional[Leaf] = None
        parts: list[typing.Literal['peel', 'core']] = Field(default_factory=list, max_length=2)

    class Loose(BaseModel):
        """Where only JSON is asked for."""
        model_config = ConfigDict(extra='allow')


def pick(colour: typing.Literal['red', 'green'], many: bool) -> str:
    """Picks fruit.

    Args:
        colour: red or green
        many: more than one
    """
    return f'{colour} {many}'


def is_fruit(x):
    assert isinstance(x, Fruit), x


# --- those whose packages get along --------------------------------------------------------------------

@client('most')
def openai(url, model):
    import openai
    c = openai.OpenAI(base_url=url, api_key='none', max_retries=0)
    ask = {'model': model, 'messages': [{'role': 'user', 'content': ASK}], 'max_tokens': MOST}
    is_fruit(c.chat.completions.parse(response_format=Fruit, **ask).choices[0].message.parsed)
    (call,) = c.chat.completions.parse(tools=[openai.pydantic_function_tool(Fruit)], tool_choice='required', parallel_tool_calls=False, **ask).choices[0].message.tool_calls
    is_fruit(call.function.parsed_arguments)
    with c.chat.completions.stream(response_format=Fruit, **ask) as stream:
        is_fruit(stream.get_final_completion().choices[0].message.parsed)




@client('most')
def litellm(url, model):
    import litellm
    for provider in ('openai/', 'hosted_vllm/'):
        ask = {'model': provider + model, 'api_base': url, 'api_key': 'none', 'messages': [{'role': 'user', 'content': ASK}], 'max_tokens': MOST}
        is_fruit(Fruit.model_validate_json(litellm.completion(response_format=Fruit, **ask).choices[0].message.content))
        tool = {'type': 'function', 'function': {'name': 'Fruit', 'parameters': Fruit.model_json_schema()}}
        for call in litellm.completion(tools=[tool], tool_choice='required', **ask).choices[0].message.tool_calls:
            is_fruit(Fruit.model_validate_json(call.function.arguments))


@client('most')
def langchain(url, model):
    import langchain_openai
    chat = langchain_openai.ChatOpenAI(base_url=url, api_key='none', model=model, max_tokens=MOST)
    for method in ('function_calling', 'json_schema'):
        is_fruit(chat.with_structured_output(Fruit, method=method).invoke(ASK))
    assert isinstance(chat.with_structured_output(None, method='json_mode').invoke(ASK), dict)
    for call in chat.bind_tools([Fruit], tool_choice='any').invoke(ASK).tool_calls:
        is_fruit(Fruit(**call['args']))
    parts = list(chat.with_structured_output(Fruit).stream(ASK))
    is_fruit(parts[-1])


@client('most')
def instructor(url, model):
    import instructor
    import openai
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.MD_JSON):
        c = instructor.from_openai(openai.OpenAI(base_url=url, api_key='none'), mode=mode)
        kind = Fruit if mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA) else Loose
        assert isinstance(c.chat.completions.create(model=model, response_model=kind, max_tokens=MOST, max_retries=0, messages=[{'role': 'user', 'content': ASK}]), kind)


@client('most')
def pydantic_ai(url, model):
    from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    served = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key='none'))
    for output in (Fruit, ToolOutput(Fruit), NativeOutput(Fruit), [Fruit, Leaf]):
        assert isinstance(Agent(served, output_type=output, retries=0, model_settings={'max_tokens': MOST}).run_sync(ASK).output, (Fruit, Leaf))
    Agent(served, output_type=PromptedOutput(Loose), retries=0, model_settings={'max_tokens': MOST}).run_sync(ASK)
    agent = Agent(served, output_type=NativeOutput(Fruit), tools=[pick], retries=0, model_settings={'max_tokens': MOST})
    is_fruit(agent.run_sync(ASK).output)


@client('most')
def outlines(url, model):
    import openai
    import outlines
    c = openai.OpenAI(base_url=url, api_key='none')
    for make in (outlines.from_openai, outlines.from_vllm):
        is_fruit(Fruit.model_validate_json(make(c, model)(ASK, Fruit, max_tokens=MOST)))
    vllm = outlines.from_vllm(c, model)
    assert vllm('Ripe?', typing.Literal['yes', 'no'], max_tokens=20) in ('yes', 'no')
    assert re.fullmatch('[a-z]{3}-[0-9]{2}', vllm('A code', outlines.regex('[a-z]{3}-[0-9]{2}'), max_tokens=20))
    assert int(vllm('How many?', int, max_tokens=20)) is not None


@client('most')
def smolagents(url, model):
    import smolagents
    agent = smolagents.ToolCallingAgent(tools=[smolagents.tool(pick)], model=smolagents.OpenAIModel(model_id=model, api_base=url, api_key='none', max_tokens=MOST), max_steps=1)
    agent.run('Call final_answer with the answer yes.')
    (step,) = (s for s in agent.memory.steps if getattr(s, 'tool_calls', None))
    assert step.tool_calls[0].name in ('pick', 'final_answer') and not step.error, step


@client('most')
def openai_agents(url, model):
    import agents
    import openai
    agents.set_tracing_disabled(True)
    served = agents.OpenAIChatCompletionsModel(model=model, openai_client=openai.AsyncOpenAI(base_url=url, api_key='none'))
    tools = [agents.function_tool(pick)]

    def run(choice=None, **more):
        return agents.Runner.run_sync(agents.Agent('a', model=served, model_settings=agents.ModelSettings(max_tokens=MOST, tool_choice=choice, parallel_tool_calls=False if choice else None), **more), ASK).final_output
    is_fruit(run(output_type=Fruit))
    is_fruit(run(output_type=Fruit, tools=tools))
    assert re.search('True|False', run('required', tools=tools, tool_use_behavior='stop_on_first_tool'))


@client('most')
def autogen(url, model):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core.models import UserMessage
    from autogen_core.tools import FunctionTool
    from autogen_ext.models.openai import OpenAIChatCompletionClient
    info = {'vision': False, 'function_calling': True, 'json_output': True, 'structured_output': True, 'family': 'unknown'}

    async def run():
        c = OpenAIChatCompletionClient(model=model, base_url=url, api_key='none', model_info=info, max_tokens=MOST, parallel_tool_calls=False)
        is_fruit(Fruit.model_validate_json((await c.create([UserMessage(content=ASK, source='u')], json_output=Fruit)).content))
        (call, *_) = (await c.create([UserMessage(content=ASK, source='u')], tools=[FunctionTool(pick, description='Picks')], tool_choice='required')).content
        assert set(json.loads(call.arguments)) == {'colour', 'many'}
        is_fruit((await AssistantAgent('a', c, output_content_type=Fruit).run(task=ASK)).messages[-1].content)
        await AssistantAgent('b', c, tools=[FunctionTool(pick, description='Picks', strict=True)], output_content_type=Fruit).run(task=ASK)
    asyncio.run(run())


@client('most')
def haystack(url, model):
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret
    ask = {'messages': [ChatMessage.from_user(ASK)]}
    g = OpenAIChatGenerator(api_key=Secret.from_token('none'), model=model, api_base_url=url, generation_kwargs={'max_tokens': MOST})
    is_fruit(Fruit.model_validate_json(g.run(**ask, generation_kwargs={'response_format': Fruit})['replies'][0].text))
    tool = Tool(name='fruit', description='Describes', parameters=Fruit.model_json_schema(), function=Fruit)
    for call in g.run(**ask, tools=[tool], generation_kwargs={'tool_choice': 'required'})['replies'][0].tool_calls:
        is_fruit(Fruit(**call.arguments))


@client('most')
def dspy(url, model):
    import dspy
    lm = dspy.LM('openai/gpt-4o-mini', api_base=url, api_key='none', max_tokens=MOST, cache=False)
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        is_fruit(dspy.Predict(dspy.Signature('question: str -> fruit: Fruit', custom_types={'Fruit': Fruit}))(question=ASK).fruit)
        assert isinstance(dspy.Predict('question -> ripe: bool')(question=ASK).ripe, bool)


@client('most')
def llm(url, model):
    with tempfile.TemporaryDirectory() as home:
        pathlib.Path(home, 'extra-openai-models.yaml').write_text(f'- {{model_id: weft, model_name: {model}, api_base: "{url}", supports_schema: true, supports_tools: true}}\n')
        for schema in ('colour, ripe bool', json.dumps(Fruit.model_json_schema())):
            p = subprocess.run([sys.executable, '-m', 'llm', '-m', 'weft', '--schema', schema, '-o', 'max_tokens', str(MOST), ASK], capture_output=True, text=True, env={**os.environ, 'LLM_USER_PATH': home, 'OPENAI_API_KEY': 'none'})
            assert p.returncode == 0, p.stderr
            assert {'colour', 'ripe'} <= set(json.loads(p.stdout)), p.stdout


@client('more')
def llama_index(url, model):
    from llama_index.llms.openai_like import OpenAILike
    chat = OpenAILike(model=model, api_base=url, api_key='none', is_chat_model=True, is_function_calling_model=True, max_tokens=MOST, context_window=4096)
    is_fruit(chat.as_structured_llm(Fruit).complete(ASK).raw)
    other = OpenAILike(model=model, api_base=url, api_key='none', is_chat_model=True, should_use_structured_outputs=True, max_tokens=MOST, context_window=4096)
    is_fruit(other.as_structured_llm(Fruit).complete(ASK).raw)


@client('more')
def crewai(url, model):
    import crewai
    lm = crewai.LLM(model='openai/' + model, base_url=url, api_key='none', max_tokens=MOST)
    is_fruit(lm.call(ASK, response_model=Fruit))
    agent = crewai.Agent(role='r', goal='g', backstory='b', llm=lm, max_iter=2)
    task = crewai.Task(description=ASK, expected_output='a fruit', output_pydantic=Fruit, agent=agent)
    is_fruit(crewai.Crew(agents=[agent], tasks=[task]).kickoff().pydantic)


def ask_all(url, kind, *names):
    classes()
    model = json.load(urllib.request.urlopen(url + '/models'))['data'][0]['id']
    bad = 0
    for one in clients[kind]:
        if names and one.__name__ not in names:
            continue
        start = time.monotonic()
        try:
            one(url, model)
            how = 'ok'
        except Exception:  # noqa: BLE001 -- told, and the next one is asked
            traceback.print_exc()
            how, bad = 'FAILED', bad + 1
        print(f'{how:6} {one.__name__}: {time.monotonic() - start:.1f} s', flush=True)
    return bad > 0


def install(kind, folder):
    """Where the packages of a list are."""
    wanted = HERE / f'python_clients_{kind}.txt'
    site = folder / f'{kind}-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:8]}'
    if not site.exists():
        with tempfile.TemporaryDirectory(dir=folder) as part:
            p = subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', '--no-deps', '--only-binary=:all:', '--target', part, '-r', wanted],
                               capture_output=True, text=True)
            if p.returncode:
                print(f'skipped: {wanted.name} could not be installed: {p.stderr.strip().splitlines()[-1]}')
                sys.exit(77)  # meson: skipped
            shutil.copytree(part, site)
    return site


def main():
    import real
    folder = pathlib.Path(sys.argv[2])
    model = real.fetch('smollm2', folder)
    sites = {kind: install(kind, folder) for kind in clients}
    # One knows only models of OpenAI's to keep to schemas, by their names.
    server = real.serve.Server('-m', model, '-c', 4096, '--greedy', '--served-model-name', 'smollm2,gpt-4o-mini', device=['--device', 'cpu'], template=None)
    bad = 0
    with tempfile.TemporaryDirectory() as home:
        for kind, site in sites.items():
            env = {**os.environ, **QUIET, 'HOME': home, 'PYTHONPATH': str(site)}
            bad += subprocess.run([sys.executable, __file__, '--at', f'http://127.0.0.1:{server.port}/v1', kind], env=env, timeout=900).returncode != 0
    sys.exit(bad > 0 or server.end()[0] != 0)


if __name__ == '__main__':
    sys.exit(ask_all(*sys.argv[2:])) if sys.argv[1] == '--at' else main()
