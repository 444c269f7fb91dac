//! A chart as inline SVG, with its legend and a table of its figures. Pure.

use std::fmt::Write;

/// Size of the drawing, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 250.0;
/// Room for the axes' figures.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// Lines across, about.
const TICKS: f64 = 5.0;
/// Rows of a table: what one can read.
const ROWS: usize = 10;
/// More points than these have no dots.
const DOTS_MAX: usize = 60;

/// How series are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Lines,
    /// Areas above each other.
    Stacked,
}

/// A series: its name, and a figure for each place across, where one is known.
pub(super) type Figures = (String, Vec<Option<f64>>);

/// A chart.
pub(super) struct Chart {
    /// Its name in links.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// A sentence below the title.
    pub(super) says: &'static str,
    /// What the figures are: "%", "ms". It stands at the axis, and in the table's head.
    pub(super) unit: &'static str,
    /// What the horizontal axis shows.
    pub(super) across: &'static str,
    pub(super) form: Form,
    /// The axis's end; `None`: the largest figure.
    pub(super) most: Option<f64>,
    pub(super) at: Vec<f64>,
    pub(super) series: Vec<Figures>,
}

/// Text as it may stand anywhere in a page.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter if letter.is_control() => escaped.extend(letter.escape_unicode()),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A figure for people: about three digits.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || size.fract() < 1e-9 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

impl Chart {
    /// The section of a page.
    pub(super) fn section(&self) -> String {
        let Self { id, title, says, .. } = self;
        if self.at.is_empty() || self.series.is_empty() {
            return format!(
                "<section id=\"{id}\"><h2>{title}</h2><p>Nothing of it was recorded.</p></section>\n"
            );
        }
        let (drawing, legend, table) = (self.drawing(), self.legend(), self.table());
        format!(
            "<section id=\"{id}\"><h2>{title}</h2><p>{says}</p>\n<div class=\"beside\"><figure>{drawing}{legend}\
             </figure>\n{table}</div></section>\n"
        )
    }

    fn drawing(&self) -> String {
        let axes = Axes::of(self);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            escape(self.title)
        );
        axes.draw(&mut svg, self);
        let mut floor = vec![0.0; self.at.len()];
        for (number, (_, figures)) in self.series.iter().enumerate() {
            match self.form {
                Form::Lines => self.line(&mut svg, &axes, number, figures),
                Form::Stacked => self.area(&mut svg, &axes, number, figures, &mut floor),
            }
        }
        svg + "</svg>"
    }

    fn line(&self, svg: &mut String, axes: &Axes, number: usize, figures: &[Option<f64>]) {
        let mut path = String::new();
        let mut is_drawn = false;
        for (&at, figure) in self.at.iter().zip(figures) {
            if let Some(figure) = figure {
                let letter = if is_drawn { 'L' } else { 'M' };
                let _ = write!(path, "{letter}{:.1} {:.1}", axes.x(at), axes.y(*figure));
            }
            is_drawn = figure.is_some();
        }
        let _ = write!(svg, "<path class=\"line c{number}\" d=\"{path}\"/>");
        if self.at.len() <= DOTS_MAX {
            for (&at, figure) in self.at.iter().zip(figures).filter_map(|(at, figure)| Some((at, (*figure)?)))
            {
                let (x, y) = (axes.x(at), axes.y(figure));
                let _ =
                    write!(svg, "<circle class=\"dot c{number}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
            }
        }
    }

    /// Draws on top of `floor`, and raises it.
    fn area(&self, svg: &mut String, axes: &Axes, number: usize, figures: &[Option<f64>], floor: &mut [f64]) {
        let (mut there, mut back) = (String::new(), String::new());
        for ((&at, figure), floor) in self.at.iter().zip(figures).zip(floor) {
            back = format!("L{:.1} {:.1}", axes.x(at), axes.y(*floor)) + &back;
            *floor += figure.unwrap_or(0.0);
            let letter = if there.is_empty() { 'M' } else { 'L' };
            let _ = write!(there, "{letter}{:.1} {:.1}", axes.x(at), axes.y(*floor));
        }
        let _ = write!(svg, "<path class=\"area c{number}\" d=\"{there}{back}Z\"/>");
    }

    fn legend(&self) -> String {
        let name = |(number, (name, _)): (usize, &(String, _))| {
            format!("<span><i class=\"c{number}\"></i>{}</span>", escape(name))
        };
        let names: String = self.series.iter().enumerate().map(name).collect();
        format!("<figcaption>{names}</figcaption>")
    }

    fn table(&self) -> String {
        let names: String =
            self.series.iter().map(|(name, _)| format!("<th>{}, {}</th>", escape(name), self.unit)).collect();
        let mut rows = String::new();
        for at in rows_of(self.at.len()) {
            let _ = write!(rows, "<tr><td>{}</td>", figure(self.at.get(at).copied().unwrap_or_default()));
            for (_, figures) in &self.series {
                let shown = figures.get(at).copied().flatten().map_or_else(|| "–".to_owned(), figure);
                let _ = write!(rows, "<td>{shown}</td>");
            }
            rows.push_str("</tr>\n");
        }
        format!(
            "<table><thead><tr><th>{}</th>{names}</tr></thead>\n<tbody>{rows}</tbody></table>",
            self.across
        )
    }
}

/// Rows that are shown of `count`: all, or some of them and the last.
fn rows_of(count: usize) -> Vec<usize> {
    let last = count.saturating_sub(1);
    let shown = count.min(ROWS);
    (0..shown).map(|row| if shown > 1 { row * last / (shown - 1) } else { 0 }).collect()
}

/// The axes: from figures to places.
struct Axes {
    from: f64,
    to: f64,
    most: f64,
}

impl Axes {
    fn of(chart: &Chart) -> Self {
        let from = chart.at.first().copied().unwrap_or(0.0);
        let to = chart.at.last().copied().unwrap_or(1.0);
        let sum = |at: usize| {
            let figures = chart.series.iter().filter_map(|(_, figures)| figures.get(at).copied().flatten());
            match chart.form {
                Form::Stacked => figures.sum::<f64>(),
                Form::Lines => figures.fold(0.0, f64::max),
            }
        };
        let largest = (0..chart.at.len()).map(sum).fold(0.0, f64::max);
        let most = chart.most.unwrap_or(largest * 1.05);
        Self { from, to, most: if most > 0.0 { most } else { 1.0 } }
    }

    fn x(&self, at: f64) -> f64 {
        // A single point is in the middle.
        let share = if self.to > self.from { (at - self.from) / (self.to - self.from) } else { 0.5 };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, figure: f64) -> f64 {
        HEIGHT - BOTTOM - (figure / self.most).clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn draw(&self, svg: &mut String, chart: &Chart) {
        let (floor, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in ticks(0.0, self.most) {
            let (y, shown) = (self.y(tick), figure(tick));
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text class=\"left\" x=\"{:.1}\" y=\"{:.1}\">\
                 {shown}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for tick in ticks(self.from, self.to) {
            let (x, shown) = (self.x(tick), figure(tick));
            let _ =
                write!(svg, "<text class=\"below\" x=\"{x:.1}\" y=\"{:.1}\">{shown}</text>", floor + 16.0);
        }
        let (middle, end) = ((LEFT + right) / 2.0, HEIGHT - 6.0);
        let (across, unit) = (escape(chart.across), escape(chart.unit));
        let _ = write!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {floor}H{right}\"/><text class=\"below\" x=\"{middle}\" y=\"{end}\">\
             {across}</text><text class=\"up\" transform=\"translate(13 {:.1}) rotate(-90)\">{unit}</text>",
            (TOP + floor) / 2.0
        );
    }
}

/// Round figures between two: steps of 1, 2 or 5 times a power of ten.
fn ticks(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / TICKS;
    if !rough.is_finite() || rough <= 0.0 {
        return vec![from];
    }
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|of| of * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (from / step).ceil() * step;
    let nth = |number: u32| first + f64::from(number) * step;
    (0..12).map(nth).take_while(|tick| *tick <= to + step * 1e-6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(at: Vec<f64>, figures: Vec<Option<f64>>) -> Chart {
        Chart {
            id: "a",
            title: "A",
            says: "",
            unit: "%",
            across: "time, s",
            form: Form::Lines,
            most: None,
            at,
            series: vec![("<b>".to_owned(), figures)],
        }
    }

    #[test]
    fn text_of_a_recording_stays_text() {
        assert_eq!(escape("<a href='x'>&\"\u{7}"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\\u{7}");
        let section = chart(vec![0.0], vec![Some(1.0)]).section();
        assert!(section.contains("&lt;b&gt;") && !section.contains("<b>"), "{section}");
    }

    #[test]
    fn a_line_breaks_where_nothing_is_known() {
        let drawing = chart(vec![0.0, 1.0, 2.0], vec![Some(1.0), None, Some(2.0)]).drawing();
        assert_eq!(drawing.matches("<circle").count(), 2);
        let path = drawing.split("line c0\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(path.matches('M').count() == 2 && !path.contains('L'), "{path}");
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(3.0, 7.0), [3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(ticks(5.0, 5.0), [5.0]);
        assert!(ticks(0.0, f64::NAN).len() == 1 && ticks(0.0, f64::INFINITY).len() == 1);
    }

    #[test]
    fn a_table_shows_few_rows_the_first_and_the_last_among_them() {
        assert_eq!(rows_of(0), [0; 0]);
        assert_eq!(rows_of(1), [0]);
        assert_eq!(rows_of(3), [0, 1, 2]);
        let many = rows_of(1000);
        assert!(many.len() == ROWS && many[0] == 0 && many[ROWS - 1] == 999);
    }
}
