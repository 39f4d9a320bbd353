"use strict";
// One module's pictures at a time. Runs before the figures are drawn: what is hidden is not drawn.
(() => {
  const choice = document.querySelector("[data-module]");
  if (!choice) return;
  const panels = [...document.querySelectorAll(".module")];
  function show() {
    panels.forEach((panel, i) => (panel.hidden = i !== choice.selectedIndex));
  }
  function turn(by) {
    choice.selectedIndex = (choice.selectedIndex + by + panels.length) % panels.length;
    choice.dispatchEvent(new Event("change"));
  }
  choice.addEventListener("change", () => {
    show();
    dispatchEvent(new Event("resize")); // draws what has come into view
  });
  document.querySelectorAll("[data-turn]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => turn(Number(button.dataset.turn)));
  });
  document.querySelector(".chooser").hidden = false;
  show();
})();
