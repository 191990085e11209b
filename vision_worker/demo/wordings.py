"""The words for each kind of screen."""

from vision_worker.demo.wording import Wording

THEMES = {"dark": ("dark", "black", "night"), "light": ("light", "white", "bright")}
GRAY = {"gray": ("gray", "grey")}
WORDINGS: dict[str, Wording] = {
    "shape": Wording(
        full=(
            "a {colour} {shape} on a {background} background",
            "{colour} {shape} on {background}",
            "{background} background with a {colour} {shape}",
            "drawing of a {colour} {shape} on a {background} background",
        ),
        partial=("a {colour} {shape}", "a {shape} on a {background} background", "a {shape}"),
        nouns=("{colour} {shape}", "{shape} drawing", "{shape}"),
        synonyms={**GRAY, "circle": ("disc", "dot"), "cross": ("plus",), "square": ("box",)},
    ),
    "terminal": Wording(
        full=(
            "a terminal with {colour} text on a {background} background",
            "{background} terminal with {colour} text",
            "command line console with {colour} text on {background}",
            "{background} shell window showing {colour} text",
        ),
        partial=(
            "a {background} terminal",
            "a terminal with {colour} text",
            "{colour} letters on a {background} console",
        ),
        nouns=("terminal", "console", "command line", "shell", "terminal text"),
        synonyms={},
    ),
    "chart": Wording(
        full=(
            "a {colour} {chart} on a {background} background",
            "{colour} {chart} on {background}",
            "plot on a {background} background, {colour} {chart}",
            "{background} {chart} in {colour}",
        ),
        partial=("a {colour} {chart}", "a {chart} on {background}", "a {chart}"),
        nouns=("{chart}", "{chart} of numbers"),
        synonyms={
            "bar chart": ("bar graph", "bars", "chart with bars"),
            "line chart": ("line graph", "line plot", "curve"),
            "scatter plot": ("scatter chart", "dots", "chart with dots"),
            "area chart": ("filled area plot", "area graph"),
            "black": ("dark",),
        },
    ),
    "pie": Wording(
        full=(
            "a mostly {colour} {style} on a {background} background",
            "a {colour} {style} on a {background} background",
            "{colour} {style} on {background}",
            "{style} with a large {colour} slice on {background}",
        ),
        partial=("a {colour} {style}", "a {style} on {background}", "a {style} with slices"),
        nouns=("{style}", "colorful {style}"),
        synonyms={
            "pie chart": ("pie", "pie graph", "pie diagram"),
            "donut chart": ("donut", "doughnut chart", "ring chart"),
            "black": ("dark",),
        },
    ),
    "editor": Wording(
        full=(
            "a {theme} code editor {layout}, {colour} status bar",
            "code editor in {theme} theme {layout} and a {colour} status bar",
            "source code in a {theme} editor {layout}, {colour} bar below",
            "programming ide {layout}, {theme} theme, {colour} status bar",
        ),
        partial=(
            "a {theme} code editor",
            "source code {layout}",
            "a {theme} code editor {layout}",
            "code in an editor {layout}",
            "a code editor with a {colour} status bar",
        ),
        nouns=("code editor", "source code", "ide", "program code", "editor with code"),
        synonyms={
            **THEMES,
            "with a sidebar": ("with a file list beside", "and a sidebar", "sidebar"),
            "without a sidebar": ("without sidebar", "full width", "no sidebar"),
            "with a terminal panel": ("with a terminal below", "and a console below"),
            "in two panes": ("split in two", "side by side", "two panes"),
        },
    ),
    "dialog": Wording(
        full=(
            "a {theme} {dialog} dialog on a {desktop} desktop",
            "{dialog} message box, {theme} theme, {desktop} desktop",
            "a {dialog} popup window, {theme}, on {desktop}",
            "{desktop} desktop with a dialog window showing a {dialog}, {theme} theme",
        ),
        partial=(
            "a {dialog} dialog",
            "a {theme} {dialog} dialog",
            "a {dialog} message on a {desktop} desktop",
            "popup with a {dialog}",
        ),
        nouns=(
            "{dialog} dialog",
            "{dialog} popup",
            "{dialog} message box",
            "dialog box",
            "{dialog}",
        ),
        synonyms={
            **THEMES,
            **GRAY,
            "error": ("red error", "failure", "error", "red cross error"),
            "warning": ("yellow warning", "caution", "warning triangle"),
            "info": ("blue info", "information", "notice"),
            "success": ("green success", "success", "done"),
        },
    ),
    "login": Wording(
        full=(
            "a {theme} login form with a {colour} button",
            "sign in page with a {colour} button, {theme} theme",
            "{theme} password login screen, {colour} button",
            "{colour} button to log in, {theme} page",
        ),
        partial=(
            "a {theme} login form",
            "a login page with a {colour} button",
            "{colour} sign in button",
            "user name and password form",
        ),
        nouns=("login", "login form", "sign in page", "password form", "login button"),
        synonyms=THEMES,
    ),
    "chat": Wording(
        full=(
            "a {theme} chat conversation with {colour} bubbles",
            "messages in a chat app, {colour} bubbles, {theme} theme",
            "{theme} messenger with {colour} message bubbles",
            "{colour} chat messages in a {theme} app",
        ),
        partial=("a {theme} chat", "a chat with {colour} bubbles", "{colour} message bubbles"),
        nouns=("chat", "messenger", "conversation", "chat messages", "message bubbles"),
        synonyms=THEMES,
    ),
    "sheet": Wording(
        full=(
            "a {theme} spreadsheet with a {colour} highlighted row",
            "table of numbers with a {colour} row, {theme} theme",
            "{theme} spreadsheet cells, {colour} highlight",
            "{colour} row in a {theme} table of cells",
        ),
        partial=(
            "a {theme} spreadsheet",
            "a spreadsheet with a {colour} row",
            "{colour} table row",
        ),
        nouns=("spreadsheet", "table", "table of numbers", "excel sheet", "spreadsheet row"),
        synonyms=THEMES,
    ),
    "web": Wording(
        full=(
            "a {theme} web page with {layout} and a {colour} header",
            "web browser showing {layout}, {theme} theme, {colour} header",
            "{layout} on a {theme} website with a {colour} bar on top",
            "{theme} website with a {colour} header and {layout}",
        ),
        partial=(
            "a web page with {layout}",
            "a {theme} web page with {layout}",
            "{layout} in the browser",
            "{layout} on a {theme} website",
            "website showing {layout}",
            "a website with a {colour} header",
        ),
        nouns=("web page {layout}", "website {layout}", "browser {layout}", "{layout}"),
        synonyms={
            **THEMES,
            "an article": ("a text to read", "a long article", "article text"),
            "a search page": ("a search engine", "a search box"),
            "an image gallery": ("a photo gallery", "many photos", "pictures"),
            "a video player": ("a video", "a movie", "video player"),
        },
    ),
    "map": Wording(
        full=(
            "a {style} with a {colour} pin",
            "{style}, {colour} marker",
            "{colour} location pin on a {style}",
            "{colour} place marker on the {style}",
        ),
        partial=("a {style}", "a map with a {colour} pin", "{colour} marker on a map"),
        nouns=("{style}", "map", "map with pin", "map marker"),
        synonyms={
            "street map": ("road map", "city map with streets", "map of streets"),
            "satellite map": ("satellite view", "aerial map", "satellite picture"),
        },
    ),
    "calendar": Wording(
        full=(
            "a {theme} calendar with a {colour} day",
            "month view calendar, {colour} marked day, {theme} theme",
            "{theme} monthly calendar, {colour} highlight",
            "{colour} date in a {theme} calendar",
        ),
        partial=("a {theme} calendar", "a calendar with a {colour} day", "{colour} calendar day"),
        nouns=("calendar", "monthly calendar", "calendar month", "month view", "calendar date"),
        synonyms=THEMES,
    ),
    "files": Wording(
        full=(
            "a {theme} file manager with {colour} folders",
            "{colour} folder icons in a {theme} file browser",
            "{theme} folder view, {colour} folders",
            "{colour} folders, {theme} file explorer",
        ),
        partial=(
            "a {theme} file manager",
            "{colour} folders",
            "a file browser with {colour} icons",
        ),
        nouns=("file manager", "folders", "file explorer", "folder icons", "files and folders"),
        synonyms=THEMES,
    ),
    "scene": Wording(
        full=(
            "a picture of {place} {time}",
            "{place} {time}",
            "photo of {place} {time}",
            "wallpaper showing {place} {time}",
        ),
        partial=("a picture of {place}", "{place}", "wallpaper with {place}"),
        nouns=("{place}", "{place} landscape", "photo {place}", "wallpaper {place}"),
        synonyms={
            "mountains": ("the mountains", "snow mountains", "mountain peaks"),
            "the sea": ("the ocean", "sea", "the water", "sea waves"),
            "a forest": ("trees", "the forest", "forest", "green trees"),
            "a city": ("city skyline", "the city", "tall buildings", "city"),
            "a desert": ("the desert", "sand dunes", "desert", "desert with cactus"),
            "by day": ("in daylight", "under a blue sky", "in the day"),
            "at dawn": ("in the morning", "at sunrise", "with a pink sky"),
            "at sunset": ("in the evening", "sunset", "with an orange sky"),
            "at night": ("in the dark", "night", "with moon and stars", "under the moon"),
        },
    ),
    "kanban": Wording(
        full=(
            "a {theme} kanban board with {columns} columns of {colour} cards",
            "task board with {columns} columns, {colour} cards, {theme} theme",
            "{theme} board of {colour} cards in {columns} lists",
            "{columns} lists of {colour} cards on a {theme} kanban board",
        ),
        partial=(
            "a {theme} kanban board",
            "a kanban board with {columns} columns",
            "{colour} cards on a task board",
            "a {theme} board with {colour} cards",
        ),
        nouns=("kanban", "kanban board", "task board", "board of cards", "board with columns"),
        synonyms=THEMES,
    ),
    "settings": Wording(
        full=(
            "a {theme} settings page with {colour} switches",
            "preferences with {colour} toggles, {theme} theme",
            "{theme} options screen, {colour} toggle switches",
            "{colour} switches on a {theme} settings page",
        ),
        partial=("a {theme} settings page", "settings with {colour} switches", "{colour} toggles"),
        nouns=("settings", "preferences", "options", "settings switches", "toggle switches"),
        synonyms=THEMES,
    ),
}
