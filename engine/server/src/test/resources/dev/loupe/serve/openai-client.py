"""What OpenAI's client for Python makes of a server's answers: python3 openai-client.py http://127.0.0.1:8080"""
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
asked = dict(model=model, prompt="ROMEO:", max_tokens=20, seed=1)
whole = client.completions.create(**asked, logprobs=2).choices[0]
assert len(whole.logprobs.tokens) == 20
events = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
assert "".join(e.choices[0].text for e in events if e.choices) == whole.text
assert events[-1].usage.completion_tokens == 20
print("completion:", repr(whole.text))
for wrong, error in (dict(max_tokens=9999), openai.BadRequestError), (dict(model="gpt-4"), openai.NotFoundError):
    try:
        client.completions.create(**{**asked, **wrong})
        raise SystemExit("%s was taken" % wrong)
    except error as e:
        print("refused:", e.param, e.code, e.request_id is not None)

talk = dict(model=model, messages=[{"role": "user", "content": "Who is there?"}], max_completion_tokens=20, seed=1)
try:
    answer = client.chat.completions.create(**talk, logprobs=True, top_logprobs=3).choices[0]
except openai.BadRequestError as e:
    assert e.code == "no_chat_format", e
    print("no chat:", e.message)
else:
    assert len(answer.logprobs.content) == 20 and len(answer.logprobs.content[0].top_logprobs) == 3
    text = ""
    with client.chat.completions.stream(**talk) as stream:
        for event in stream:
            if event.type == "content.delta":
                text += event.delta
    assert text == answer.message.content
    print("chat:", repr(text))
