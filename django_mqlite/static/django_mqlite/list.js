// Labels the cells of a list with their column, for narrow screens, where each row is a card.
"use strict";

for (const table of document.querySelectorAll("#result_list")) {
    const labels = Array.from(table.tHead.rows[0].cells, (cell) => cell.textContent.trim());
    for (const row of table.tBodies[0].rows) {
        Array.from(row.cells).forEach((cell, index) => {
            cell.dataset.label = labels[index];
        });
    }
}
