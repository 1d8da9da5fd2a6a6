"""Ask a model that `ingot serve MODEL` serves, with a tool, by OpenAI's client: python examples/ask_a_server.py QUESTION [URL]"""

import json
import sys

from openai import OpenAI

question, url = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000/v1"
client = OpenAI(base_url=url, api_key="none", timeout=60)
name = client.models.list().data[0].id
parameters = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
tool = {"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": parameters}}
messages = [{"role": "user", "content": question}]
for _ in range(3):  # the model may call the tool, read its result, and answer
    with client.chat.completions.stream(model=name, messages=messages, tools=[tool], max_tokens=64) as stream:
        message = stream.get_final_completion().choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        given = json.loads(call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])})
    if not message.tool_calls:
        break
print(message.content)
