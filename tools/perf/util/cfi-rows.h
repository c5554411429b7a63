/* SPDX-License-Identifier: GPL-2.0 */
#ifndef __PERF_CFI_ROWS_H
#define __PERF_CFI_ROWS_H

#include <elfutils/libdw.h>
#include "sframe.h"

/* Why the caller of a row is not known from the table */
enum cfi_row_kind {
	CFI_ROW_SAID,
	CFI_ROW_PLT,		/* two rows for each entry of 16 bytes */
	CFI_ROW_UNSAID,		/* SFrame has no words for it */
};

bool cfi_program__is_sound(const u8 *p, const u8 *end);
enum cfi_row_kind cfi_row__convert(struct sframe_row *row, Dwarf_Frame *frame, int ra_reg,
				   bool is_signal, u32 *plt_threshold);

#endif /* __PERF_CFI_ROWS_H */
