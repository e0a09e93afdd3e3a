// Tables in <div class="sortable"> are sorted by a click on the head of a column; a second click turns the order round.
document.addEventListener("click", (event) => {
  const head = event.target.closest(".sortable th");
  if (!head) return;
  const table = head.closest("table");
  const column = [...head.parentNode.children].indexOf(head);
  const down = head.dataset.order !== "down";
  for (const other of head.parentNode.children) delete other.dataset.order;
  head.dataset.order = down ? "down" : "up";
  const value = (row) => row.children[column].textContent.trim();
  const rows = [...table.tBodies[0].rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    const [x, y] = [parseFloat(a), parseFloat(b)];
    const order = isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
});
