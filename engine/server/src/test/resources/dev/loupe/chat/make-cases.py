"""Makes cases.json: chat templates of usual shapes, and what jinja2 makes of them, set up as transformers does it.

    python3 make-cases.py cases.json      # needs jinja2 3.1
"""
import json, sys
from jinja2 import ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

T = {}
T["chatml"] = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
T["chatml-lines"] = """\
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content | trim) ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
T["llama-2"] = """\
{% if messages[0]['role'] == 'system' %}
    {% set loop_messages = messages[1:] %}
    {% set system_message = messages[0]['content'] %}
{% else %}
    {% set loop_messages = messages %}
    {% set system_message = false %}
{% endif %}
{% for message in loop_messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {% endif %}
    {% if loop.index0 == 0 and system_message != false %}
        {% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
    {% else %}
        {% set content = message['content'] %}
    {% endif %}
    {% if message['role'] == 'user' %}
        {{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
    {% elif message['role'] == 'assistant' %}
        {{ ' ' + content.strip() + ' ' + eos_token }}
    {% endif %}
{% endfor %}
"""
T["alpaca"] = """\
{{ bos_token }}{% for message in messages %}
{% if message['role'] == 'system' %}
{{ message['content'] }}

{% elif message['role'] == 'user' %}
### Instruction:
{{ message['content'] }}

{% elif message['role'] == 'assistant' %}
### Response:
{{ message['content'] }}{{ eos_token }}

{% endif %}
{% endfor %}
{% if add_generation_prompt %}
### Response:
{% endif %}
"""
T["user-assistant"] = "{% for message in messages %}{% if not loop.first %}{{ '\\n' }}{% endif %}{{ message['role'].capitalize() }}: {{ message['content'] }}{% if loop.last and add_generation_prompt %}{{ '\\nAssistant:' }}{% endif %}{% endfor %}"
T["namespace"] = """\
{%- set ns = namespace(system='', turns=0) -%}
{%- for m in messages -%}
  {%- if m['role'] == 'system' -%}{%- set ns.system = ns.system + m['content'] -%}{%- else -%}{%- set ns.turns = ns.turns + 1 -%}{%- endif -%}
{%- endfor -%}
{{ bos_token }}{% if ns.system %}{{ ns.system }}
{% endif %}
{%- for m in messages if m.role != 'system' %}
{{ m.role | upper }} {{ loop.index }}/{{ ns.turns }}: {{ m.content | tojson }}
{% endfor %}
"""
T["macro"] = """\
{%- macro turn(role, text) -%}
<|start_header_id|>{{ role }}<|end_header_id|>

{{ text | trim }}<|eot_id|>
{%- endmacro -%}
{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif -%}
{%- if messages and messages[0].role == 'system' -%}
{{ turn('system', 'Date: ' + date_string + '\\n' + messages[0].content) }}{% set messages = messages[1:] %}
{%- endif -%}
{%- for message in messages %}{{ turn(message.role, message.content) }}{% endfor -%}
{%- if add_generation_prompt is defined and add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}
"""
T["methods"] = """\
{%- for m in messages -%}
{%- if m.content is string and m['content'].startswith('H') %}[{{ m.content.split(' ')[-1] }}|{{ m.content[:3] }}|{{ m.content.replace('l', 'L') }}]{% endif -%}
{%- if 'name' in m %}({{ m.name }}){% endif -%}
{%- if m.get('tool_calls') is none or m.tool_calls is not defined %}-{% endif -%}
{{ m.content.rstrip() }}/{{ m.content | length }}/{{ (m.content | trim).lower() }};
{%- endfor -%}
{{ messages[-1]['role'] }} {{ messages | length }} {{ (messages | selectattr('role', 'equalto', 'user') | list | length) }}
{{- ' <b>&amp;"' }} {{ '<i>' }} {{ {'a': [1, true, none, 'ü<']} | tojson }} {{ messages[0] | tojson }}
{%- for k, v in messages[0].items() %} {{ k }}={{ v }}{% endfor -%}
{% set x = ['a', 'b'] + ['c'] %}{{ x | join(',') }} {{ range(3) | list | length }} {{ 7 // 2 }} {{ 1 if x else 2 }} {{ 'yes' if 'b' not in x else 'no' }}
"""
T["break"] = "{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
T["generation"] = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"

U = [{"role": "user", "content": "Hello, world"}]
SU = [{"role": "system", "content": "Be brief."}] + U
SUAU = SU + [{"role": "assistant", "content": " Hi <there> & \"you\" {{ x }} {% y %}\n"}, {"role": "user", "content": "  What's new?\n\nTwo lines, ünï 😀 \\n "}]
UU = U + U
C = {"u": U, "su": SU, "suau": SUAU, "uu": UU}

class Gen(ext.Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        from jinja2.nodes import CallBlock
        return CallBlock(self.call_method("_g"), [], [], body).set_lineno(line)
    def _g(self, caller): return caller()

class Refused(Exception): pass
def refuse(m): raise Refused(m)
env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[ext.loopcontrols, Gen])
env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
env.globals["raise_exception"] = refuse
cases = []
for name, text in T.items():
    template = env.from_string(text)
    for chat, messages in C.items():
        for add in (True, False):
            case = {"template": name, "chat": chat, "add_generation_prompt": add}
            try:
                case["text"] = template.render(messages=messages, add_generation_prompt=add, bos_token="<s>", eos_token="</s>")
            except Refused as e:
                case["refused"] = str(e)
            cases.append(case)
json.dump({"templates": T, "chats": C, "cases": cases}, open(sys.argv[1], "w"), ensure_ascii=False, indent=1)
print(len(cases))
