// What chains say: the law of a state some slots later.
export function times(law, chain) {
  return chain[0].map((_, k) => law.reduce((sum, p, s) => sum + p * chain[s][k], 0));
}

// The law after each of `slots` slots from now without a pull, the first now itself; null for an arm never seen.
// Of an arm that reacts to pulls, `unseen` has the last state, the slots since then, and since each pull after it.
export function laws(arm, state, elapsed, slots, unseen) {
  const [last, since, pulls] = unseen ?? [state, elapsed, []];
  if (last === null || last === undefined || (last < 0 && !unseen)) return null;
  const rest = (law, count) => {
    for (let k = 0; k < Math.min(count, 2000); k++) law = times(law, arm.transitions);
    return law;
  };
  const pulled = (law) => times(law, arm.active_transitions ?? arm.transitions);
  const n = arm.transitions.length;
  let law =
    last < 0
      ? rest(Array(n).fill(1 / n), 2000)
      : rest(pulled(arm.transitions.map((_, k) => Number(k === last))), since - (pulls[0] ?? 0) - 1);
  pulls.forEach((ago, k) => {
    law = rest(pulled(law), ago - (pulls[k + 1] ?? 0) - 1);
  });
  const found = [law];
  for (let k = 0; k < slots; k++) found.push((law = times(law, arm.transitions)));
  return found;
}

export const expected = (law, rewards) => law.reduce((sum, p, k) => sum + p * (rewards[k] ?? 0), 0);

// A chain whose chance to stay in a state is another; what remains is shared as before.
export function withStay(chain, state, stay) {
  const rest = 1 - chain[state][state],
    n = chain.length;
  return chain.map((row, s) =>
    s !== state
      ? row
      : row.map((p, k) => (k === state ? stay : rest > 1e-9 ? (p / rest) * (1 - stay) : (1 - stay) / (n - 1))),
  );
}
