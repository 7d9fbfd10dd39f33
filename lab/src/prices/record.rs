//! The record: a CSV file with the machine, the versions and every price.

use super::measure::Price;
use super::ways::{Call, Size, Way};
use crate::record::text_of;

/// The subject of a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A call without a block.
    Call(Call),
    /// A way over a block.
    Way { way: Way, size: Size },
}

/// A price, or a short reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub subject: Subject,
    pub price: Result<Price, String>,
}

const COLUMNS: &str = "way,populated,size,bytes,readings,times,ns_median,ns_least,pages,absent";

/// The file's text. The head is in lines `# key: value`.
pub fn csv(head: &[(String, String)], rows: &[Row]) -> String {
    text_of(head, COLUMNS, rows, line)
}

fn line(row: &Row) -> String {
    format!("{},{}", subject(row.subject), price(&row.price))
}

fn subject(subject: Subject) -> String {
    match subject {
        Subject::Call(call) => format!("{},,,", call.name()),
        Subject::Way { way, size } => {
            let (act, holding) = (way.act.name(), way.holding.name());
            format!("{act},{holding},{},{}", size.name, size.bytes)
        }
    }
}

fn price(price: &Result<Price, String>) -> String {
    match price {
        Ok(price) => {
            let Price {
                ns_least,
                ns_median,
                readings,
                times,
                pages,
            } = price;
            let pages = pages.map(|pages| pages.to_string()).unwrap_or_default();
            format!("{readings},{times},{ns_median:.1},{ns_least:.1},{pages},")
        }
        Err(reason) => format!(",,,,,{}", reason.replace(',', ";")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ways::{SIZES, WAYS};
    use super::*;
    use crate::record::split_head;

    #[test]
    fn every_price_is_a_line_with_all_columns() {
        let price = Price {
            ns_least: 400.25,
            ns_median: 412.0,
            readings: 900,
            times: 50,
            pages: Some(0),
        };
        let way = Subject::Way {
            way: WAYS[0],
            size: SIZES[3],
        };
        let rows = [
            (
                Subject::Call(Call::ParentId),
                Ok(Price {
                    pages: None,
                    ..price
                }),
            ),
            (way, Ok(price)),
            (way, Err("refused, twice".to_string())),
        ];
        let rows = rows.map(|(subject, price)| Row { subject, price });
        let text = csv(&[("date".into(), "today".into())], &rows);
        let (head, columns, lines) = split_head(&text).unwrap();
        assert_eq!(head, [("date".to_string(), "today".to_string())]);
        assert_eq!(columns, COLUMNS);
        let wanted = columns.split(',').count();
        assert!(lines.iter().all(|line| line.split(',').count() == wanted));
        assert_eq!(
            lines,
            [
                "getppid,,,,900,50,412.0,400.2,,",
                "PAGEMAP_SCAN,nothing,1M,1048576,900,50,412.0,400.2,0,",
                "PAGEMAP_SCAN,nothing,1M,1048576,,,,,,refused; twice",
            ]
        );
    }
}
