// Puts the page together: navigation, theme, sections, and links that open what they point to.

const SECTIONS = [
  ["flow", "Flow"],
  ["evals", "Evals"],
  ["data", "Data"],
  ["tokenizer", "Tokenizer"],
  ["curves", "Curves"],
  ["generations", "Generations"],
  ["rollouts", "Rollouts"],
  ["stages", "Stages"],
];

function renderNavigation() {
  const links = new Map(SECTIONS.map(([id, text]) => [id, h("a", { href: `#${id}` }, text)]));
  byId("nav").append(...links.values());
  const here = (id) => {
    for (const [name, link] of links) {
      if (name !== id) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "true");
        const nav = byId("nav"); // on a narrow page the row of links scrolls: keep the current one in sight
        nav.scrollTo({ left: link.offsetLeft - nav.clientWidth / 2 + link.clientWidth / 2 });
      }
    }
  };
  const spy = () => {
    const line = innerHeight * 0.3;
    const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 4;
    const passed = SECTIONS.filter(([id]) => byId(id).getBoundingClientRect().top < line);
    here(atEnd ? SECTIONS.at(-1)[0] : passed.length ? passed.at(-1)[0] : null);
  };
  addEventListener("scroll", spy, { passive: true });
  spy();
}

// A link to a stage opens its details.
function openTarget() {
  const target = location.hash.length > 1 && byId(location.hash.slice(1));
  if (!target) return;
  if (target.matches("details")) {
    target.open = true;
    target.querySelector("summary").focus({ preventScroll: true });
  }
  target.scrollIntoView();
}

renderTheme();
renderHeader();
renderFlow();
renderEvals();
renderHistories();
renderFunnels();
renderTokenizer();
renderCurves();
renderGenerations();
renderRollouts();
renderStages();
renderNavigation();
addEventListener("hashchange", openTarget);
addEventListener(
  "scroll",
  () => {
    if (!document.activeElement.matches(".nodes, .chart")) hideTip();
  },
  { passive: true },
);
addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTip();
});
document.addEventListener("click", (event) => {
  // clicking the same stage twice must open it twice
  const link = event.target.closest && event.target.closest('a[href^="#stage"]');
  if (link && link.getAttribute("href") === location.hash) openTarget();
});
// Paper cannot be clicked: print the stages open, and close them again afterwards.
let openedToPrint = [];
addEventListener("beforeprint", () => {
  openedToPrint = [...document.querySelectorAll("details.stage-details:not([open])")];
  for (const details of openedToPrint) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of openedToPrint) details.open = false;
});
openTarget();
