// What chains say: the law of a state some slots later.
export function times(law, chain) {
  return chain[0].map((_, k) => law.reduce((sum, p, s) => sum + p * chain[s][k], 0));
}

// The law after each of `slots` slots from now, the first now itself; null for an arm never seen.
export function laws(arm, state, elapsed, slots) {
  if (state === null || state === undefined || state < 0) return null;
  let law = arm.transitions.map((_, k) => Number(k === state));
  for (let k = 0; k < Math.min(elapsed, 2000); k++) law = times(law, arm.transitions);
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
