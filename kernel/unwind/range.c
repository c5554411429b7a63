// SPDX-License-Identifier: GPL-2.0
/*
 * Which file is mapped at an address, in any context and without locks.
 *
 * The mm's tree is walked under RCU, and VMAs are freed a grace period after they have
 * left it. But a VMA may be changed while it is read. Its lock cannot be taken: to release
 * it may wake a task, under rq->lock. So it is read as under a sequence counter. A writer
 * first calls vma_start_write(), which sets the VMA's vm_lock_seq to the mm's mm_lock_seq.
 * Releasing the locks increments mm_lock_seq. A read is valid if the two numbers differ and
 * neither has changed when all is read.
 *
 * This needs the stores of vma_start_write() and those that follow it to be seen in
 * order. On x86 stores are.
 */
#include <linux/build_bug.h>
#include <linux/fs.h>
#include <linux/maple_tree.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include <asm/unwind_user.h>

#include <kunit/visibility.h>

#include "table.h"

/* How often a mapping is read that changes meanwhile. */
#define MAX_ATTEMPTS	4

/**
 * unwind_inode_key - the key of a file's table
 * @key:	set
 * @inode:	of the file
 *
 * Context: Any. Nobody keeps the file from changing meanwhile; then the key is of neither
 * file, or of one of the two.
 */
void unwind_inode_key(struct unwind_key *key, const struct inode *inode)
{
	key->device = READ_ONCE(inode->i_sb)->s_dev;
	key->inode = READ_ONCE(inode->i_ino);
	key->generation = READ_ONCE(inode->i_generation);
	key->size = i_size_read(inode);
	key->seconds = READ_ONCE(inode->i_mtime_sec);
	key->nanoseconds = READ_ONCE(inode->i_mtime_nsec);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_inode_key);

static void image_key(struct unwind_key *key, const void *image)
{
	*key = (struct unwind_key){ .device = U64_MAX, .inode = (unsigned long)image };
}

/**
 * unwind_address_key - the key of what is mapped at an address
 * @key:	set
 * @addr:	in the current task's memory
 *
 * Context: Task context. Takes mmap_lock for reading.
 * Return: 0, -EINVAL if neither a file nor the vDSO is mapped there, -EINTR if the task is
 * killed.
 */
int unwind_address_key(struct unwind_key *key, unsigned long addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	const void *image;
	int err = -EINVAL;

	if (mmap_read_lock_killable(mm))
		return -EINTR;
	vma = vma_lookup(mm, addr);
	if (vma && vma->vm_file) {
		if (S_ISREG(file_inode(vma->vm_file)->i_mode)) {
			unwind_inode_key(key, file_inode(vma->vm_file));
			err = 0;
		}
	} else if (vma) {
		image = arch_unwind_vdso(mm, vma->vm_start);
		if (image) {
			image_key(key, image);
			err = 0;
		}
	}
	mmap_read_unlock(mm);
	return err;
}

/* What is read of a VMA. */
struct range_vma {
	unsigned long	start;
	unsigned long	end;
	unsigned long	pgoff;
	unsigned long	flags;
	struct inode	*inode;
	const void	*image;
};

/* Read @vma. False: it may have changed meanwhile. */
static bool vma_read(struct mm_struct *mm, struct vm_area_struct *vma,
		     struct range_vma *to)
{
	unsigned int mm_seq, vma_seq;
	struct file *file;

	mm_seq = READ_ONCE(mm->mm_lock_seq.sequence);
	vma_seq = READ_ONCE(vma->vm_lock_seq);
	if (vma_seq == mm_seq)
		return false;

	/* Pairs with the order of stores in vma_start_write(), and vma_end_write_all(). */
	smp_rmb();
	to->start = READ_ONCE(vma->vm_start);
	to->end = READ_ONCE(vma->vm_end);
	to->pgoff = READ_ONCE(vma->vm_pgoff);
	to->flags = READ_ONCE(vma->vm_flags);
	to->inode = NULL;
	to->image = NULL;
	file = READ_ONCE(vma->vm_file);
	/* The file may go, and be freed at once. Then what is read here does not count. */
	if (file && get_kernel_nofault(to->inode, &file->f_inode))
		return false;
	if (!file)
		to->image = arch_unwind_vdso(mm, to->start);
	if (READ_ONCE(vma->detached))
		return false;
	/* As above: what follows is not read ahead of what was read. */
	smp_rmb();
	return READ_ONCE(vma->vm_lock_seq) == vma_seq &&
	       READ_ONCE(mm->mm_lock_seq.sequence) == mm_seq;
}

/* Nobody knows of the frames here. If there are any, frame pointers find them. */
static bool range_none(struct unwind_range *range, unsigned long start, unsigned long size)
{
	range->start = start;
	range->size = size;
	range->table = NULL;
	range->number = 0;
	range->row = UNWIND_ROW_RECORD;
	return true;
}

/*
 * The part of a mapping around @addr that lies between the first and the last function
 * of its table, or that is ahead of or behind these.
 */
static bool range_of_table(struct unwind_range *range, const struct range_vma *vma,
			   unsigned long addr, const struct unwind_table *table)
{
	const struct unwind_sframe *sframe = &table->sframe;
	u64 start = (u64)vma->pgoff << PAGE_SHIFT, end = start + (vma->end - vma->start);
	u64 offset = start + (addr - vma->start), first = start;

	range->table = NULL;
	if (offset < sframe->first) {
		end = min(end, sframe->first);
	} else if (offset - sframe->first >= sframe->span) {
		start = max(start, sframe->first + sframe->span);
	} else {
		start = max(start, sframe->first);
		end = min(end, sframe->first + sframe->span);
		range->table = table;
	}

	range->start = vma->start + (start - first);
	range->size = end - start;
	range->offset = start;
	range->number = table->base + (start - sframe->first);
	range->row = range->size > UNWIND_GAP_MAX ? UNWIND_ROW_RECORD : UNWIND_ROW_END;
	return true;
}

/**
 * unwind_range_find - find the executable memory around an address
 * @mm:		the current task's
 * @addr:	the address
 * @range:	set
 *
 * Where nothing is mapped, or nothing that is executable, there is a range without a
 * table, too.
 *
 * Context: Any, NMI included, in an RCU read-side section.
 * Return: whether @range could be read. False: it was being changed.
 */
bool unwind_range_find(struct mm_struct *mm, unsigned long addr,
		       struct unwind_range *range)
{
	struct range_vma copy __uninitialized;
	const struct unwind_table *table;
	struct vm_area_struct *vma;
	struct unwind_key key __uninitialized;
	unsigned int i;

	for (i = 0; i < MAX_ATTEMPTS; i++) {
		MA_STATE(mas, &mm->mm_mt, addr, addr);

		vma = mas_walk(&mas);
		if (!vma)
			return range_none(range, addr, 1);
		/* Another one may be here by now. */
		if (vma_read(mm, vma, &copy) && addr >= copy.start && addr < copy.end)
			goto found;
	}
	return false;

found:
	if (!(copy.flags & VM_EXEC))
		return range_none(range, addr, 1);
	if (copy.inode)
		/* The mapping held it in this read-side section, and inodes are freed by RCU. */
		unwind_inode_key(&key, copy.inode);
	else if (copy.image)
		image_key(&key, copy.image);
	else
		return range_none(range, copy.start, copy.end - copy.start);

	table = unwind_table_find(&key);
	if (!table)
		return range_none(range, copy.start, copy.end - copy.start);
	return range_of_table(range, &copy, addr, table);
}
EXPORT_SYMBOL_IF_KUNIT(unwind_range_find);
