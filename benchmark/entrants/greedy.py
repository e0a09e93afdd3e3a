"""An entrant of the planning track in plain Python, without this package: the arms that gain most at once."""

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    answer: dict[str, object] = {}
    if message["type"] == "start":
        if message["view"] != "states":
            answer = {"decline": "I look at single arms"}
        else:
            plays, gains = message["problem"]["plays"], []
            for kind in message["problem"]["kinds"]:
                resting = kind["passive_rewards"] or [0.0] * len(kind["rewards"])
                gain = [pulled - rest for pulled, rest in zip(kind["rewards"], resting, strict=True)]
                gains += [gain] * kind["count"]
    elif message["type"] == "slot":
        states = message["states"]
        order = sorted(range(len(states)), key=lambda arm: -gains[arm][states[arm]])
        answer = {"arms": order[:plays]}
    elif message["type"] == "end":
        break
    print(json.dumps(answer), flush=True)
