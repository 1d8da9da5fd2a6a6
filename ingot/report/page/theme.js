// Auto follows the system; the choice is remembered where the browser lets a local file remember.
function renderTheme() {
  const button = byId("theme"),
    order = ["auto", "light", "dark"],
    signs = { auto: "◐", light: "○", dark: "●" };
  const stored = () => {
    try {
      return localStorage.getItem("ingot-theme");
    } catch {
      return null;
    }
  };
  const store = (value) => {
    try {
      localStorage.setItem("ingot-theme", value);
    } catch {
      /* private window: fine */
    }
  };
  let theme = order.includes(stored()) ? stored() : "auto";
  const show = () => {
    document.documentElement.setAttribute("data-theme", theme);
    button.replaceChildren(
      h("span", { "aria-hidden": "true" }, signs[theme]),
      h("span", { class: "theme-word" }, ` ${title(theme)}`),
    );
    button.setAttribute("aria-label", `Theme: ${theme}. Change theme`);
  };
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    store(theme);
    show();
  });
  show();
}
