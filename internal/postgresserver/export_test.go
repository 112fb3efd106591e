package postgresserver

// SetDebian names another place than Debian's.
func SetDebian(pattern string) (restore func()) {
	before := debian
	debian = pattern
	return func() { debian = before }
}
